"""config.json's `vision_config` of MiniCPM-V 4.6 and 4.7, and the outer keys about the tower."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Two = Annotated[int, Field(ge=2, le=2)]

# 16x joins patches twice, 2x2 each time: within the tower, and behind it.
DownsampleMode = Literal["16x", "4x"]


class TowerConfig(BaseModel):
    """Keys of MiniCPMV4_6VisionConfig, and of the outer config those that shape tower and merger.

    Attributes:
        image_size: side of the square that the table of positions was made for, in pixels.
        hidden_act: always the tanh approximation of GELU.
        insert_layer_id: the window merger stands behind this layer, counted from 0.
        downsample_mode: `16x` or, without the window merger, `4x`: patches to a soft token.
        merger_times: how often the merger behind the tower joins 2x2 patches.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    image_size: int = Field(gt=0)
    patch_size: int = Field(gt=0)
    num_channels: Literal[3] = 3
    layer_norm_eps: float = Field(default=1e-6, gt=0)
    hidden_act: Literal["gelu_pytorch_tanh"] = "gelu_pytorch_tanh"
    window_kernel_size: tuple[_Two, _Two] = (2, 2)

    insert_layer_id: int = Field(default=6, ge=0)
    downsample_mode: DownsampleMode = "16x"
    merge_kernel_size: tuple[_Two, _Two] = (2, 2)
    merger_times: int = Field(default=1, gt=0)

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> TowerConfig:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"a config with 'hidden_size' ({self.hidden_size}) a multiple of "
                f"'num_attention_heads' ({self.num_attention_heads})"
            )
        return self

    @model_validator(mode="after")
    def _positions_have_a_table(self) -> TowerConfig:
        if self.image_size < self.patch_size:
            raise ValueError(
                f"a config with 'image_size' ({self.image_size}) of at least one 'patch_size' "
                f"({self.patch_size})"
            )
        return self

    @model_validator(mode="after")
    def _windows_merge_behind_a_layer(self) -> TowerConfig:
        if self.merges_windows and self.insert_layer_id >= self.num_hidden_layers:
            raise ValueError(
                f"a config with 'insert_layer_id' ({self.insert_layer_id}) below "
                f"'num_hidden_layers' ({self.num_hidden_layers})"
            )
        return self

    @property
    def merges_windows(self) -> bool:
        """Whether the window merger takes part."""
        return self.downsample_mode == "16x"

    @property
    def merges(self) -> int:
        """How often 2x2 neighbours become one."""
        return self.merger_times + self.merges_windows

    @property
    def unit(self) -> int:
        """Side of the square of pixels that one soft token stands for."""
        return self.patch_size * 2**self.merges


class CanvasMarkers(BaseModel):
    """Ids of the tokens that frame pictures, by which MiniCPM-V 4.7 places them on a canvas."""

    model_config = ConfigDict(frozen=True)

    image_start_id: int | None = None
    image_end_id: int | None = None
    slice_start_id: int | None = None
    slice_end_id: int | None = None
    newline_id: int | None = None

    @property
    def missing(self) -> str | None:
        """The first key that the config lacks."""
        return next((key for key in type(self).model_fields if getattr(self, key) is None), None)

    @property
    def ids(self) -> frozenset[int]:
        """All of them."""
        found = (getattr(self, key) for key in type(self).model_fields)
        return frozenset(each for each in found if each is not None)
