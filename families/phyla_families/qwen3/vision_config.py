"""The `vision_config` of Qwen3-VL's and Qwen3.5's config.json."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

_TENSOR = re.compile(r"(model\.)?(visual|vision_tower)\..*")


class VisionConfig(BaseModel):
    """Qwen3VLVisionConfig and Qwen3_5VisionConfig, with the latter's defaults.

    Attributes:
        spatial_merge_size: so many patches by so many make a soft token.
        temporal_patch_size: so many frames make a patch.
        num_position_embeddings: entries of the table of positions, a square.
        deepstack_visual_indexes: the blocks whose output goes into the decoder's first layers too.
        out_hidden_size: width of the features; the text part's hidden size.
    """

    model_config = ConfigDict(
        frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False
    )

    depth: int = Field(default=27, gt=0)
    hidden_size: int = Field(default=1152, gt=0)
    hidden_act: str = "gelu_pytorch_tanh"
    intermediate_size: int = Field(default=4304, gt=0)
    num_heads: int = Field(default=16, gt=0)
    in_channels: int = 3
    patch_size: int = Field(default=16, gt=0)
    spatial_merge_size: int = Field(default=2, gt=0)
    temporal_patch_size: int = Field(default=2, gt=0)
    out_hidden_size: int = Field(default=3584, gt=0)
    num_position_embeddings: int = Field(default=2304, gt=0)
    deepstack_visual_indexes: tuple[int, ...] = ()
    rope_theta: float = Field(default=10000.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _read_the_theta_of_version_5(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = cast("Mapping[str, Any]", data)
        raw = {str(key): value for key, value in keys.items() if value is not None}
        rope = raw.get("rope_parameters")
        if isinstance(rope, Mapping) and "rope_theta" in rope:
            raw.setdefault("rope_theta", rope["rope_theta"])
        return raw

    @model_validator(mode="after")
    def _is_a_tower_that_is_built(self) -> Self:
        if self.hidden_act != "gelu_pytorch_tanh":
            raise ValueError(f"a tower with a 'hidden_act' of 'gelu_pytorch_tanh', not "
                             f"{self.hidden_act!r}")  # fmt: skip
        if self.in_channels != 3:
            raise ValueError(f"a tower with 3 'in_channels', not {self.in_channels}")
        if self.hidden_size % self.num_heads or self.head_dim % 4:
            raise ValueError(
                f"a tower whose 'hidden_size' ({self.hidden_size}) is 'num_heads' "
                f"({self.num_heads}) times a multiple of 4"
            )
        if self.side**2 != self.num_position_embeddings:
            raise ValueError(
                f"a tower whose 'num_position_embeddings' is a square, not "
                f"{self.num_position_embeddings}"
            )
        indexes = self.deepstack_visual_indexes
        if any(not 0 <= index < self.depth for index in indexes) or (
            sorted(set(indexes)) != list(indexes)
        ):
            raise ValueError(
                f"a tower whose 'deepstack_visual_indexes' rise and are below its 'depth' "
                f"({self.depth}), not {indexes}"
            )
        return self

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden_size // self.num_heads

    @property
    def side(self) -> int:
        """Rows, and columns, of the table of positions."""
        return math.isqrt(self.num_position_embeddings)

    @property
    def block_size(self) -> int:
        """Pixels along a side of what becomes one soft token."""
        return self.patch_size * self.spatial_merge_size

    def check_width(self, hidden_size: int) -> None:
        """Check that features fit a decoder of this width.

        Raises:
            ValueError: they do not; for a validator of the config to raise.
        """
        if self.out_hidden_size != hidden_size:
            raise ValueError(
                f"a config whose tower has an 'out_hidden_size' ({self.out_hidden_size}) equal to "
                f"the text part's 'hidden_size' ({hidden_size})"
            )


def with_vision(text: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """A text part's keys, with the `vision_config` that stands beside it in config.json."""
    vision = raw.get("vision_config")
    return dict(text) if vision is None else {**text, "vision_config": vision}


def holds_tower(checkpoint: Checkpoint) -> bool:
    """Whether the files hold the tower's tensors; conversions to text alone do not."""
    return any(_TENSOR.fullmatch(name) for name in checkpoint.tensors)
