"""config.json of Qwen3-VL and Qwen3-VL-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field, model_validator

from phyla.family import text_keys
from phyla_families.qwen3.config import Config
from phyla_families.qwen3.siblings import refuse_siblings
from phyla_families.qwen3.vision_config import VisionConfig, holds_tower, with_vision

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint


class VlConfig(Config):
    """Qwen3VLConfig and Qwen3VLMoeConfig, whose text is Qwen3's.

    Attributes:
        vision: the tower; None where there is none, or where `settle` found no tensors for it.
    """

    vision: VisionConfig | None = Field(default=None, validation_alias="vision_config")

    @model_validator(mode="before")
    @classmethod
    def _read_the_text_part(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        outer = cast("Mapping[str, Any]", data)
        refuse_siblings(outer)
        raw = with_vision(text_keys(outer), outer)
        # The classes' own: a width, the pairs of each axis, and a router without a key for it.
        raw.setdefault("head_dim", 128)
        raw.setdefault("mrope_section", [24, 20, 20])
        vision = raw.get("vision_config")
        if isinstance(vision, Mapping):
            raw["vision_config"] = {"deepstack_visual_indexes": [8, 16, 24], **vision}
        return {**raw, "norm_topk_prob": True}

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        if self.vision is not None:
            self.vision.check_width(self.hidden_size)
        return self

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Decide by the files whether there is a head, and whether there is a tower."""
        settled = super().settle(checkpoint)
        if holds_tower(checkpoint):
            return settled
        return settled.model_copy(update={"vision": None})
