"""How LFM2-VL's pictures are prepared, read from a checkpoint's preprocessor files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field, ValidationError, model_validator

from phyla.family import PREPROCESSOR_FILE, PROCESSOR_FILE, Origin, PixelSettings
from phyla.validation import expected

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint
    from phyla_families.lfm2_vl.config import Config
    from phyla_families.lfm2_vl.vision_config import VisionConfig

# A later one wins; none of them holds every key.
_FILES = (PREPROCESSOR_FILE, PROCESSOR_FILE)
_PART = "image_processor"

_SPLITTING: Mapping[str, object] = {
    "do_image_splitting": True, "min_tiles": 2, "max_tiles": 10, "use_thumbnail": True,
}  # fmt: skip


class ImageSettings(PixelSettings):
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
        use_image_special_tokens: whether marks stand around views and pictures.
    """

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
    use_image_special_tokens: bool = True

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


def read_settings(config: Config, tower: VisionConfig, checkpoint: Checkpoint) -> ImageSettings:
    """Read a checkpoint's settings; what its files leave out is as the class has it.

    Raises:
        CheckpointError: a key is wrong, or is not what the tower was made for.
    """
    keys: dict[str, Any] = {
        "downsample_factor": config.downsample_factor,
        "encoder_patch_size": tower.patch_size,
    }
    origins: dict[str, Origin] = {}
    for file in _FILES:
        content = checkpoint.preprocessing.get(file, {})
        # Those of the image processor may stand by themselves.
        inner = content.get(_PART)
        nested = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {}
        for origin, found in ((Origin(file), content), (Origin(file, _PART), nested)):
            said = {key: value for key, value in found.items() if value is not None}
            keys |= said
            origins |= dict.fromkeys(said, origin)
    if _is_conversion(checkpoint) and keys.get("do_image_splitting") is False:
        # Conversions to MLX were written with splitting off for models trained with it; small
        # print is lost without (Blaizzy/mlx-vlm#1885).
        keys |= _SPLITTING
    try:
        settings = ImageSettings.model_validate(keys)
    except ValidationError as error:
        first = error.errors()[0]
        at = first["loc"]
        # What no key is to blame for is the fault of any file.
        origin = origins.get(str(at[0])) if at else None
        origin = origin or Origin(next(iter(origins.values()), Origin(_FILES[0])).file)
        raise origin.wrong(at, expected(first), first["input"]) from None
    for key, built in (
        ("downsample_factor", config.downsample_factor),
        ("encoder_patch_size", tower.patch_size),
    ):
        if getattr(settings, key) != built:
            wanted = f"{built}, as config.json has it"
            raise origins[key].wrong((key,), wanted, getattr(settings, key))
    return settings


def _is_conversion(checkpoint: Checkpoint) -> bool:
    return any(name.startswith("language_model.") for name in checkpoint.tensors)
