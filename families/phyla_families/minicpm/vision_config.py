"""config.json of MiniCPM-V 4.6 and 4.7: the text part, the tower, and what frames pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import Field, model_validator

from phyla.errors import ConfigError
from phyla.family import HybridConfig
from phyla_families.minicpm.siblings import refuse_siblings
from phyla_families.minicpm.tower_config import CanvasMarkers, TowerConfig

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

# Keys about the tower that stand beside `vision_config`, and count for more than what is in it.
_OUTER = ("insert_layer_id", "downsample_mode", "merge_kernel_size", "merger_times")

_PATCHES = "embeddings.patch_embedding.weight"


class VisionConfig(HybridConfig):
    """MiniCPMV4_6Config and MiniCPMV4_7Config, whose text is Qwen3.5's, dense or of experts.

    Attributes:
        vision: the tower; None where config.json or, once settled, the file has none.
        canvas: what frames pictures, of 4.7; None of 4.6, where a token's position is its place.
    """

    family: ClassVar[str] = "minicpm"

    vision: TowerConfig | None = Field(default=None, validation_alias="vision_config")
    canvas: CanvasMarkers | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_the_outer_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = dict(cast("Mapping[str, Any]", data))
        refuse_siblings(raw)
        text, vision = raw.get("text_config"), raw.get("vision_config")
        if not isinstance(text, Mapping) or not vision:
            return raw
        if isinstance(vision, Mapping):
            outer = {key: raw[key] for key in _OUTER if raw.get(key) is not None}
            inner = cast("Mapping[str, Any]", vision).items()
            vision = {**{key: value for key, value in inner if value is not None}, **outer}
        added: dict[str, Any] = {"vision_config": vision}
        if raw.get("model_type") == "minicpmv4_7":
            mode = raw.get("mrope_mode", "canvas")
            if mode != "canvas":
                raise ValueError(f"a config with a 'mrope_mode' of 'canvas', not {mode!r}")
            added["canvas"] = {key: raw.get(key) for key in CanvasMarkers.model_fields}
        # The rest of what is outside says nothing of the text.
        return {**raw, "text_config": {**cast("Mapping[str, Any]", text), **added}}

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Decide by the files whether there is a tower, beside what decides about the text.

        Raises:
            ConfigError: there is one, and config.json lacks what its pictures are placed by.
        """
        settled = super().settle(checkpoint)
        if not any(name.endswith(_PATCHES) for name in checkpoint.tensors):
            return settled.model_copy(update={"vision": None, "canvas": None})
        key = None if self.canvas is None else self.canvas.missing
        if key is not None:
            raise ConfigError(
                self.family, key, "the id of a token, by which images are placed", None
            )
        return settled
