"""`vision_config` and `audio_config` of Gemma 4's config.json, of models with towers and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from phyla.errors import ConfigError
from phyla.validation import expected, place, shown

if TYPE_CHECKING:
    from typing_extensions import Self


class _Part(BaseModel):
    """The base of the nested configs: frozen; keys that change nothing here are left aside."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    rms_norm_eps: float = Field(default=1e-6, gt=0)


class TowerConfig(_Part):
    """Gemma4VisionConfig: a vision transformer (E2B, E4B, 26B-A4B, 31B).

    Attributes:
        patch_size: the side of a patch, in pixels.
        pooling_kernel_size: so many patches, each way, become one soft token.
        position_embedding_size: how many columns, and rows, of patches have an embedding.
        rope_theta: base of the rotation, from `rope_parameters`.
        use_clipped_linears: inputs and outputs of the blocks' projections are bounded.
        standardize: pooled features are shifted and scaled, each by its own.
    """

    hidden_size: int = Field(default=768, gt=0)
    intermediate_size: int = Field(default=3072, gt=0)
    num_hidden_layers: int = Field(default=16, gt=0)
    num_attention_heads: int = Field(default=12, gt=0)
    num_key_value_heads: int = Field(default=12, gt=0)
    head_dim: int = Field(default=64, gt=0, multiple_of=4)
    hidden_activation: Literal["gelu_pytorch_tanh"] = "gelu_pytorch_tanh"
    patch_size: int = Field(default=16, gt=0)
    pooling_kernel_size: int = Field(default=3, gt=0)
    position_embedding_size: int = Field(default=10240, gt=0)
    rope_theta: float = Field(default=100.0, gt=0)
    use_clipped_linears: bool = False
    standardize: bool = False

    @model_validator(mode="before")
    @classmethod
    def _base_of_the_rotation(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = dict(cast("Mapping[str, Any]", data))
        rope = raw.get("rope_parameters")
        if isinstance(rope, Mapping) and "rope_theta" in rope:
            raw["rope_theta"] = cast("Mapping[str, Any]", rope)["rope_theta"]
        return raw

    @model_validator(mode="after")
    def _each_head_has_its_keys(self) -> Self:
        if self.num_key_value_heads != self.num_attention_heads:
            raise ValueError(
                f"a config with as many 'num_key_value_heads' as 'num_attention_heads' "
                f"({self.num_attention_heads}), not {self.num_key_value_heads}"
            )
        return self

    @property
    def side(self) -> int:
        """The side of what becomes one soft token, in pixels."""
        return self.patch_size * self.pooling_kernel_size

    @property
    def longest(self) -> int:
        """How many soft tokens may stand side by side."""
        return self.position_embedding_size // self.pooling_kernel_size


class PatchesConfig(_Part):
    """Gemma4UnifiedVisionConfig: no tower, large patches (12B).

    Attributes:
        patch_size: upstream's name for a part of the patch,
        pooling_kernel_size: which has so many of them each way.
        mm_embed_dim: width of an embedded patch.
        mm_posemb_size: how many columns, and rows, of patches have an embedding.
    """

    patch_size: int = Field(default=16, gt=0)
    pooling_kernel_size: int = Field(default=3, gt=0)
    mm_embed_dim: int = Field(default=3840, gt=0)
    mm_posemb_size: int = Field(default=1120, gt=0)

    @property
    def side(self) -> int:
        """The side of a patch, which becomes one soft token, in pixels."""
        return self.patch_size * self.pooling_kernel_size

    @property
    def longest(self) -> int:
        """How many soft tokens may stand side by side."""
        return self.mm_posemb_size


class ConformerConfig(_Part):
    """Gemma4AudioConfig: a conformer (E2B, E4B).

    Attributes:
        subsampling_conv_channels: of the two convolutions that halve time and frequency; the first
            is also the number of mel bins.
        conv_kernel_size: of the convolution over time in each layer.
        residual_weight: of a feed-forward branch.
        attention_context_left: one more than the frames that a frame sees, itself included.
        attention_logit_cap: a score's absolute value stays below it.
        gradient_clipping: the bound of what flows between branches.
        output_proj_dims: width of the output.
    """

    hidden_size: int = Field(default=1024, gt=0, multiple_of=2)
    num_hidden_layers: int = Field(default=12, gt=0)
    num_attention_heads: int = Field(default=8, gt=0)
    hidden_act: Literal["silu", "swish"] = "silu"
    subsampling_conv_channels: tuple[int, int] = (128, 32)
    conv_kernel_size: int = Field(default=5, gt=0)
    residual_weight: float = 0.5
    attention_context_left: int = Field(default=13, gt=1)
    attention_context_right: Literal[0] = 0
    attention_logit_cap: float = Field(default=50.0, gt=0)
    use_clipped_linears: bool = True
    gradient_clipping: float = Field(default=1e10, gt=0)
    output_proj_dims: int = Field(default=1536, gt=0)

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"a config with 'hidden_size' ({self.hidden_size}) a multiple of "
                f"'num_attention_heads' ({self.num_attention_heads})"
            )
        bins, channels = self.subsampling_conv_channels
        if bins < 1 or bins % 4 or channels < 1:
            raise ValueError(
                f"a config with two positive 'subsampling_conv_channels', the first a multiple of "
                f"4, not {[bins, channels]}"
            )
        return self

    @property
    def bins(self) -> int:
        """The number of mel bins."""
        return self.subsampling_conv_channels[0]


class SamplesConfig(_Part):
    """Gemma4UnifiedAudioConfig: no tower, frames of samples (12B).

    Attributes:
        audio_embed_dim: how many samples become one soft token.
    """

    audio_embed_dim: int = Field(default=640, gt=0)


PartT = TypeVar("PartT", bound=_Part)


def read_part(kind: type[PartT], raw: object, key: str) -> PartT:
    """Read a nested config; null inside it is as good as absent.

    Raises:
        ConfigError: it is no mapping, or one of its keys is wrong; names the key.
    """
    if not isinstance(raw, Mapping):
        raise ConfigError("gemma4", key, "an object or null", shown(raw))
    keys = cast("Mapping[str, Any]", raw)
    try:
        return kind.model_validate({k: value for k, value in keys.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        wanted = expected(first)
        raise ConfigError(
            "gemma4", place(key, first["loc"]), wanted[:1].lower() + wanted[1:], first["input"]
        ) from None
