"""How LFM2-VL's pictures are prepared, read from a checkpoint's preprocessor files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from phyla.errors import CheckpointError
from phyla.validation import expected, place

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint
    from phyla_families.lfm2_vl.config import Config
    from phyla_families.lfm2_vl.vision_config import VisionConfig

# A later one wins; none of them holds every key.
_FILES = ("preprocessor_config.json", "processor_config.json")

_SPLITTING: Mapping[str, object] = {
    "do_image_splitting": True, "min_tiles": 2, "max_tiles": 10, "use_thumbnail": True,
}  # fmt: skip


class ImageSettings(BaseModel):
    """Keys of Lfm2VlImageProcessor. `do_resize`, `do_pad` and `max_num_patches` are not read.

    Pictures are always resized, whatever `do_resize` says; padding is for batches, which we do not
    make; and the number of patches follows from the other keys, and is wrong in some files.

    Attributes:
        downsample_factor: sides of a soft token, in patches.
        encoder_patch_size: sides of a patch, in pixels.
        tile_size: sides of a tile, in pixels.
        min_tiles: the fewest tiles that a large picture is cut into,
        max_tiles: and the most.
        use_thumbnail: whether the whole picture follows its tiles.
        min_image_tokens: the fewest soft tokens of a picture that is not cut,
        max_image_tokens: and the most.
        max_pixels_tolerance: how many times larger than that a picture may be and not be cut.
        resample: Pillow's number of the filter that resizes.
        use_image_special_tokens: whether marks stand around views and pictures.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    downsample_factor: int = Field(gt=0)
    encoder_patch_size: int = Field(gt=0)
    tile_size: int = Field(default=512, gt=0)
    do_image_splitting: bool = True
    min_tiles: int = Field(default=2, gt=0)
    # The vocabulary has marks for ten rows and ten columns.
    max_tiles: int = Field(default=10, gt=0, le=10)
    use_thumbnail: bool = True
    min_image_tokens: int = Field(default=64, gt=0)
    max_image_tokens: int = Field(default=256, gt=0)
    max_pixels_tolerance: float = Field(default=2.0, gt=0)
    resample: int = Field(default=2, ge=0, le=5)
    do_rescale: bool = True
    rescale_factor: float = Field(default=1 / 255, gt=0)
    do_normalize: bool = True
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    use_image_special_tokens: bool = True

    @field_validator("image_std")
    @classmethod
    def _deviations_are_positive(
        cls, found: tuple[float, float, float]
    ) -> tuple[float, float, float]:
        if min(found) <= 0:
            raise ValueError("three positive numbers")
        return found

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.tile_size % self.token_size:
            raise ValueError(
                f"settings with a 'tile_size' ({self.tile_size}) that is a multiple of a soft "
                f"token's side, {self.token_size} pixels"
            )
        for least, most in (("min_tiles", "max_tiles"), ("min_image_tokens", "max_image_tokens")):
            if getattr(self, least) > getattr(self, most):
                raise ValueError(f"settings with {least!r} up to {most!r}")
        return self

    @property
    def token_size(self) -> int:
        """The side of a soft token, in pixels."""
        return self.encoder_patch_size * self.downsample_factor

    @property
    def splits(self) -> bool:
        """Whether a large picture is cut into tiles."""
        return self.do_image_splitting and self.max_tiles > 1

    @property
    def longest_view(self) -> int:
        """The most soft tokens that a view may have."""
        tile = (self.tile_size // self.token_size) ** 2 if self.do_image_splitting else 0
        return max(self.max_image_tokens, tile)

    @property
    def mean(self) -> tuple[float, ...]:
        """What is subtracted from each channel, in levels of 0 to 255."""
        mean = self.image_mean if self.do_normalize else (0.0, 0.0, 0.0)
        return tuple(value / self._unit for value in mean)

    @property
    def deviation(self) -> tuple[float, ...]:
        """What each channel is divided by then, in the same levels."""
        deviation = self.image_std if self.do_normalize else (1.0, 1.0, 1.0)
        return tuple(value / self._unit for value in deviation)

    @property
    def _unit(self) -> float:
        return self.rescale_factor if self.do_rescale else 1.0


def read_settings(config: Config, tower: VisionConfig, checkpoint: Checkpoint) -> ImageSettings:
    """Read a checkpoint's settings; what its files leave out is as the class has it.

    Raises:
        CheckpointError: a key is wrong, or is not what the tower was made for.
    """
    keys: dict[str, Any] = {
        "downsample_factor": config.downsample_factor,
        "encoder_patch_size": tower.patch_size,
    }
    source: dict[str, str] = {}
    for file in _FILES:
        found = _flat(checkpoint.preprocessing.get(file, {}))
        keys |= found
        source |= dict.fromkeys(found, file)
    if _is_conversion(checkpoint) and keys.get("do_image_splitting") is False:
        # Conversions to MLX were written with splitting off for models trained with it; small
        # print is lost without (Blaizzy/mlx-vlm#1885).
        keys |= _SPLITTING
    try:
        settings = ImageSettings.model_validate(keys)
    except ValidationError as error:
        first = error.errors()[0]
        key = place("", first["loc"])
        known = source.get(str(first["loc"][0]) if first["loc"] else "")
        wanted, value = expected(first), first["input"] if key else None
        raise _wrong(known or next(iter(source.values()), _FILES[0]), key, wanted, value) from None
    for key, built in (
        ("downsample_factor", config.downsample_factor),
        ("encoder_patch_size", tower.patch_size),
    ):
        if getattr(settings, key) != built:
            wanted = f"{built}, as config.json has it"
            raise _wrong(source[key], key, wanted, getattr(settings, key))
    return settings


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a file that are not null; those of the image processor may stand by themselves."""
    inner = content.get("image_processor")
    nested = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {}
    return {key: value for key, value in {**content, **nested}.items() if value is not None}


def _is_conversion(checkpoint: Checkpoint) -> bool:
    return any(name.startswith("language_model.") for name in checkpoint.tensors)


def _wrong(file: str, key: str, wanted: str, found: object) -> CheckpointError:
    what = f"{file}: key {key!r} should be {wanted}, found {found!r}." if key else (
        f"{file} should hold {wanted}."
    )  # fmt: skip
    return CheckpointError(
        what,
        file=file,
        field=key or None,
        expected=wanted,
        found=found,
        hint="Compare the file with the published one.",
    )
