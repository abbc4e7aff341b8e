"""config.json in, typed values out. Knows nothing of a particular model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from phyla.errors import ConfigError
from phyla.family.json_types import mistyped
from phyla.validation import expected, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint


class ConfigPart(BaseModel):
    """Keys of config.json that belong together: frozen, of JSON's types, unknown ones kept aside.

    A number is no text, and neither true nor text is a number. A whole number with a point, such as
    8.0, is an integer: some exporters write them so.
    """

    model_config = ConfigDict(
        frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_type_of_its_key(cls, value: object, info: ValidationInfo) -> object:
        assert info.field_name is not None
        wanted = mistyped(value, cls.model_fields[info.field_name].annotation)
        if wanted is not None:
            raise ValueError(wanted)
        return value


class FamilyConfig(ConfigPart):
    """The base of a family's config: frozen, every spelling by alias, unknown keys kept aside.

    A subclass declares the keys that change the computation; keys it does not know stay readable in
    `model_extra` and are never an error.

    Attributes:
        vocab_size: rows of the head; may exceed the tokenizer's vocabulary.
    """

    family: ClassVar[str] = "?"

    vocab_size: int = Field(gt=0)

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Decide what config.json leaves to the files, such as whether there is a head."""
        return self

    @property
    def context_length(self) -> int | None:
        """How many tokens the model was made for; None when the config does not say."""
        return None

    @classmethod
    def as_written(cls, raw: Mapping[str, Any], place: Sequence[int | str]) -> Sequence[int | str]:
        """Where config.json has what the fields have at a place; for errors to name.

        A family whose validators move keys about says here where they came from.

        Args:
            raw: the content of config.json.
            place: the field, and the way into it.
        """
        return place

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Read the content of config.json.

        Raises:
            ConfigError: a key is missing or wrong; names the key, expected and found.
        """
        try:
            return cls.model_validate(dict(raw))
        except ValidationError as error:
            first = error.errors()[0]
            key = place("", cls.as_written(raw, first["loc"])) or "config.json"
            missing = first["type"] == "missing"
            found = None if missing else first["input"]
            wanted = "present" if missing else expected(first)
            raise ConfigError(cls.family, key, wanted[:1].lower() + wanted[1:], found) from None
