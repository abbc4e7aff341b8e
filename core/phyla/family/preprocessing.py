"""How a checkpoint's preprocessor files are read: where a setting stands, and what is wrong with it.

Transformers 5 writes the settings of all modalities into processor_config.json, each in an object of
its own; before, each had a file. A key that is null counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from phyla.errors import CheckpointError
from phyla.validation import expected, place, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from phyla.checkpoint import Checkpoint

PROCESSOR_FILE = "processor_config.json"
PREPROCESSOR_FILE = "preprocessor_config.json"
VIDEO_FILE = "video_preprocessor_config.json"

Channels = tuple[float, float, float]
_Positive = Annotated[float, Field(gt=0)]
Deviations = tuple[_Positive, _Positive, _Positive]

_NO_MEAN: Channels = (0.0, 0.0, 0.0)
_NO_DEVIATION: Channels = (1.0, 1.0, 1.0)


class MediaSettings(BaseModel):
    """What a family asks the files for; keys that it does not name are left alone."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = cast("Mapping[str, Any]", data)
        return {str(key): value for key, value in keys.items() if value is not None}


@dataclass(frozen=True)
class Affine:
    """What is done to pixels from 0 to 255, for each color.

    Attributes:
        scale: they are multiplied by it,
        shift: and it is added after that.
    """

    scale: Channels
    shift: Channels

    @classmethod
    def normalizing(cls, mean: Channels, deviation: Channels, *, factor: float = 1 / 255) -> Affine:
        """Multiply by a factor, subtract a mean, divide by a deviation."""
        return cls(
            scale=(factor / deviation[0], factor / deviation[1], factor / deviation[2]),
            shift=(-mean[0] / deviation[0], -mean[1] / deviation[1], -mean[2] / deviation[2]),
        )

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """`scale` and `shift`, `[3]` each, for a tower."""
        return {
            "scale": np.array(self.scale, np.float32),
            "shift": np.array(self.shift, np.float32),
        }


class PixelSettings(MediaSettings):
    """The usual keys that say how pixels are scaled, with the usual defaults.

    Attributes:
        resample: Pillow's number of the filter that resizes; 2 is bilinear, 3 bicubic.
        do_rescale: whether pixels are multiplied by the factor.
        rescale_factor: usually 1/255.
        do_normalize: whether the mean is subtracted then, and what is left divided by the deviation.
        image_mean: for each color,
        image_std: likewise.
    """

    resample: int = Field(default=3, ge=0, le=5)
    do_rescale: bool = True
    rescale_factor: float = Field(default=1 / 255, gt=0)
    do_normalize: bool = True
    image_mean: Channels = (0.5, 0.5, 0.5)
    image_std: Deviations = (0.5, 0.5, 0.5)

    @property
    def affine(self) -> Affine:
        """All of it at once."""
        factor = self.rescale_factor if self.do_rescale else 1.0
        if not self.do_normalize:
            return Affine.normalizing(_NO_MEAN, _NO_DEVIATION, factor=factor)
        return Affine.normalizing(self.image_mean, self.image_std, factor=factor)


SettingsT = TypeVar("SettingsT", bound=BaseModel)


@dataclass(frozen=True)
class Origin:
    """Where settings stand.

    Attributes:
        file: its name.
        part: the object in it that they are; empty for the whole file.
    """

    file: str
    part: str = ""

    def wrong(self, parts: Iterable[int | str], wanted: str, found: object) -> CheckpointError:
        """The error that a value is not what it should be.

        Args:
            parts: the path to it.
            wanted: what it should be, to go on after "should be".
            found: what it is.
        """
        key = place(self.part, parts)
        wanted = wanted[:1].lower() + wanted[1:]
        return CheckpointError(
            f"{self.file}: {key or 'the whole'} should be {wanted}; found {shown(found)}.",
            file=self.file,
            field=key or None,
            expected=wanted,
            found=found,
            hint=f"Compare {self.file} with the published one, or remove it for the usual settings.",
        )

    def read(self, model: type[SettingsT], content: object) -> SettingsT:
        """Check what stands there.

        Raises:
            CheckpointError: a value is not what it should be; names file and key.
        """
        try:
            return model.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            raise self.wrong(first["loc"], expected(first), first["input"]) from None


@dataclass(frozen=True)
class Section(Generic[SettingsT]):
    """Settings, and where they stand."""

    settings: SettingsT
    origin: Origin

    def check(self, key: str, wanted: object) -> None:
        """Check a setting that config.json says too, and that the weights were made for.

        Args:
            key: its name, in the file and of the attribute. None is not looked at.
            wanted: what config.json has.

        Raises:
            CheckpointError: they differ.
        """
        found = getattr(self.settings, key)
        if found is not None and found != wanted:
            raise self.origin.wrong((key,), f"{wanted!r}, as config.json has it", found)


class Preprocessing:
    """The preprocessor files of a checkpoint. Converted checkpoints often lack some of them."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._files = checkpoint.preprocessing

    def section(self, model: type[SettingsT], part: str, *files: str) -> Section[SettingsT]:
        """Read a modality's settings; what the files leave out is as the model has it.

        Args:
            model: the keys, and their defaults.
            part: the object of processor_config.json, which goes before all other files.
            files: those that they stand in otherwise; the first that there is.

        Raises:
            CheckpointError: a value is not what it should be; names file and key.
        """
        content: object = self._files.get(PROCESSOR_FILE, {}).get(part)
        origin = Origin(PROCESSOR_FILE, part)
        if content is None:
            origin = Origin(next((file for file in files if file in self._files), files[0]))
            content = self._files.get(origin.file, {})
        return Section(origin.read(model, content), origin)
