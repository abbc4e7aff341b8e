"""config.json of Qwen3-Next, and of Qwen3.5 (3.6, 3.8) with and without its vision tower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import Field, model_validator

from phyla.family import HybridConfig
from phyla_families.qwen3.siblings import refuse_siblings
from phyla_families.qwen3.vision_config import VisionConfig, holds_tower, with_vision

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint


class Config(HybridConfig):
    """Qwen3NextConfig, Qwen3_5Config and Qwen3_5MoeConfig, and the text configs of the latter.

    Attributes:
        vision: the tower; None where there is none, or where `settle` found no tensors for it.
    """

    family: ClassVar[str] = "qwen3"

    vision: VisionConfig | None = Field(default=None, validation_alias="vision_config")

    @model_validator(mode="before")
    @classmethod
    def _is_no_sibling(cls, data: object) -> object:
        if isinstance(data, Mapping):
            refuse_siblings(cast("Mapping[str, Any]", data))
        return data

    @model_validator(mode="before")
    @classmethod
    def _the_tower_stands_outside(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = cast("Mapping[str, Any]", data)
        inner, vision = raw.get("text_config"), raw.get("vision_config")
        if not isinstance(inner, Mapping):
            return {key: value for key, value in raw.items() if key != "vision_config"}
        if isinstance(vision, Mapping):
            # Qwen3.5's class has no such key, whatever a file says.
            vision = {k: v for k, v in vision.items() if k != "deepstack_visual_indexes"}
        text = cast("Mapping[str, Any]", inner)
        return {**raw, "text_config": with_vision(text, {"vision_config": vision})}

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        if self.vision is not None:
            self.vision.check_width(self.hidden_size)
        return self

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Decide by the files about the head, the norms, and whether there is a tower."""
        settled = super().settle(checkpoint)
        if holds_tower(checkpoint):
            return settled
        return settled.model_copy(update={"vision": None})
