"""Where settings of media stand: in processor_config.json, or in a file of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from phyla.errors import CheckpointError
from phyla.validation import expected, place, shown

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint

_TOGETHER = "processor_config.json"


class Settings(BaseModel):
    """A key that is null counts as absent; keys that nobody asks for are left alone."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = cast("Mapping[str, Any]", data)
        return {key: value for key, value in keys.items() if value is not None}


class SettingsSource:
    """Where settings stand: a file, and perhaps an object in it."""

    def __init__(self, file: str, start: str = "") -> None:
        self._file, self._start = file, start

    def check(self, key: str, found: float | None, wanted: float | None) -> None:
        """Check what the weights were made for, where the file says it."""
        if found is not None and found != wanted:
            raise self.wrong((key,), f"{wanted}, as the tower's", found)

    def wrong(self, parts: tuple[int | str, ...], wanted: str, found: object) -> CheckpointError:
        """What is not as it should be."""
        key = place(self._start, parts) or "the whole"
        wanted = wanted[:1].lower() + wanted[1:]
        return CheckpointError(
            f"{self._file}: {key} should be {wanted}; found {shown(found)}.",
            file=self._file,
            found=found,
            expected=wanted,
            field=key,
            hint=f"Compare {self._file} with the published one.",
        )


SettingsT = TypeVar("SettingsT", bound=Settings)


def read_settings(
    kind: type[SettingsT], checkpoint: Checkpoint, part: str, files: tuple[str, ...]
) -> tuple[SettingsT, SettingsSource]:
    """Transformers 5 writes all into one file, which then goes before the others."""
    together = checkpoint.preprocessing.get(_TOGETHER, {}).get(part)
    if together is not None:
        source, found = SettingsSource(_TOGETHER, part), together
    else:
        file = next((file for file in files if file in checkpoint.preprocessing), files[0])
        source, found = SettingsSource(file), checkpoint.preprocessing.get(file, {})
    try:
        return kind.model_validate(found), source
    except ValidationError as error:
        first = error.errors()[0]
        raise source.wrong(first["loc"], expected(first), first["input"]) from None
