"""config.json of LFM2-VL's vision tower: a SigLIP 2 of the NaFlex kind."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

_PATCH_EMBEDDING = re.compile(
    r"(model\.)?vision_tower\.(vision_model\.)?embeddings\.patch_embedding\.weight"
)
_LAYER_NORM = re.compile(r"(model\.)?multi_modal_projector\.layer_norm\.weight")


class VisionConfig(BaseModel):
    """Siglip2VisionConfig, with its defaults: transformers writes no key that has its default.

    Attributes:
        num_patches: places in the table of positions, a square.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    model_type: Literal["siglip2_vision_model"] = "siglip2_vision_model"
    hidden_size: int = Field(default=768, gt=0)
    intermediate_size: int = Field(default=3072, gt=0)
    num_hidden_layers: int = Field(default=12, gt=0)
    num_attention_heads: int = Field(default=12, gt=0)
    num_channels: Literal[3] = 3
    patch_size: int = Field(default=16, gt=0)
    num_patches: int = Field(default=256, gt=0)
    layer_norm_eps: float = Field(default=1e-6, gt=0)
    hidden_act: Literal["gelu_pytorch_tanh"] = "gelu_pytorch_tanh"

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_is_null(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = cast("Mapping[str, Any]", data)
        return {key: value for key, value in keys.items() if value is not None}

    @model_validator(mode="after")
    def _heads_are_of_one_width(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"a tower with 'hidden_size' ({self.hidden_size}) a multiple of "
                f"'num_attention_heads' ({self.num_attention_heads})"
            )
        return self

    @model_validator(mode="after")
    def _positions_form_a_square(self) -> Self:
        if self.side**2 != self.num_patches:
            raise ValueError(f"a tower with a square as 'num_patches', not {self.num_patches}")
        return self

    @property
    def side(self) -> int:
        """How many rows, and columns, the table of positions has."""
        return math.isqrt(self.num_patches)


def holds_tower(checkpoint: Checkpoint) -> bool:
    """Whether the file has the tower's tensors; a conversion for text alone leaves them out."""
    return any(map(_PATCH_EMBEDDING.fullmatch, checkpoint.tensors))


def holds_layer_norm(checkpoint: Checkpoint) -> bool:
    """Whether the file has the projector's layer norm."""
    return any(map(_LAYER_NORM.fullmatch, checkpoint.tensors))
