"""config.json of LFM2, LFM2-MoE and LFM2-VL, in every spelling they came in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import AliasChoices, Field, model_validator

from phyla.family import DecoderConfig, check_layer_types
from phyla_families.lfm2_vl.siblings import refuse_siblings
from phyla_families.lfm2_vl.vision_config import VisionConfig, holds_layer_norm, holds_tower

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

_LAYER_TYPES = ("conv", "full_attention")
_DENSE_WIDTH = re.compile(r"(.*\.)?layers\.\d+\.feed_forward\.(w1|gate_proj)\.weight")
_TIES = ("tie_embedding", "tie_word_embeddings")  # the first one wins

# Keys of the outer config of a vision-language model that are not about its text.
_VISION_KEYS = (
    "vision_config", "downsample_factor", "projector_hidden_size", "projector_hidden_act",
    "projector_bias", "projector_use_layernorm",
)  # fmt: skip


class Config(DecoderConfig):
    """Lfm2Config and Lfm2MoeConfig; `num_experts` is None for a dense model.

    Attributes:
        intermediate_size: width of a dense MLP, after LFM2's adjustment of the key of that name.
        layer_types: `conv` or `full_attention`, one for each layer.
        conv_L_cache: how many tokens a short convolution sees.
        num_dense_layers: how many layers of a mixture of experts, the first ones, have none.
        num_key_value_heads: 8 when the key is absent.
        vision_config: the tower; None for a model of text alone, and after `settle` where the file
            does not hold it.
        downsample_factor: sides of a soft token, in patches.
        projector_hidden_size: width between the projector's linear layers.
        projector_use_layernorm: whether the projector has a layer norm; when the key is absent,
            `settle` goes by whether the file holds one.
    """

    family: ClassVar[str] = "lfm2_vl"
    default_rope_theta: ClassVar[float | None] = 1e6

    rms_norm_eps: float = Field(
        default=1e-5, gt=0, validation_alias=AliasChoices("norm_eps", "rms_norm_eps")
    )
    tie_word_embeddings: bool | None = True
    layer_types: tuple[str, ...]
    conv_L_cache: int = Field(default=3, gt=1)
    conv_bias: bool = False

    num_experts: int | None = Field(default=None, gt=0)
    num_experts_per_tok: int | None = Field(default=None, gt=0)
    moe_intermediate_size: int | None = Field(default=None, gt=0)
    num_dense_layers: int = Field(default=2, ge=0)
    use_expert_bias: bool = True
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.0

    vision_config: VisionConfig | None = None
    downsample_factor: int = Field(default=2, gt=0)
    projector_hidden_size: int = Field(default=2560, gt=0)
    projector_hidden_act: Literal["gelu"] = "gelu"
    projector_bias: bool = True
    projector_use_layernorm: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_every_spelling(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        whole = dict(cast("Mapping[str, Any]", data))
        refuse_siblings(whole)
        inner = whole.get("text_config")
        raw = whole
        if isinstance(inner, Mapping):
            seen = {key: whole[key] for key in _VISION_KEYS if key in whole}
            raw = {"model_type": "lfm2", **inner, **seen}
        raw.setdefault("num_key_value_heads", 8)  # the classes' own
        # transformers ties the head of an LFM2-VL as the outer config says.
        said = [each.get(key) for each in (whole, raw) for key in _TIES]
        raw["tie_word_embeddings"] = next((tie for tie in said if tie is not None), True)
        if raw.get("model_type") == "lfm2_moe":
            _require(raw, "num_experts", "num_experts_per_tok", "moe_intermediate_size")
        else:
            raw.pop("num_experts", None)
            _adjust_width(raw)
        if raw.get("layer_types") is None:
            raw["layer_types"] = _types_of_layers(raw)
        return raw

    @model_validator(mode="after")
    def _each_layer_has_a_known_type(self) -> Self:
        check_layer_types(self.layer_types, count=self.num_hidden_layers, known=_LAYER_TYPES)
        return self

    @model_validator(mode="after")
    def _there_are_as_many_experts_as_are_chosen(self) -> Self:
        chosen, experts = self.num_experts_per_tok, self.num_experts
        if experts is not None and chosen is not None and chosen > experts:
            raise ValueError(
                f"a mixture of experts with 'num_experts_per_tok' ({chosen}) up to 'num_experts' "
                f"({experts})"
            )
        return self

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Take the MLPs' width from the file, and whether there is a tower and a projector's norm.

        Some configs hold the width adjusted, some before that.
        """
        settled = super().settle(checkpoint)
        if settled.vision_config is not None:
            update: dict[str, object] = {}
            if not holds_tower(checkpoint):
                update["vision_config"] = None
            if settled.projector_use_layernorm is None:
                update["projector_use_layernorm"] = holds_layer_norm(checkpoint)
            settled = settled.model_copy(update=update)
        for name, tensor in checkpoint.tensors.items():
            if _DENSE_WIDTH.fullmatch(name):
                return settled.model_copy(update={"intermediate_size": tensor.shape[0]})
        return settled

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer's MLP is a mixture of experts."""
        return self.num_experts is not None and layer >= self.num_dense_layers

    @property
    def normalizes_patches(self) -> bool:
        """Whether the projector has a layer norm; it has one by default."""
        return self.projector_use_layernorm is not False


def _require(raw: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if raw.get(key) is None:
            raise ValueError(f"a mixture of experts with {key!r}")


def _adjust_width(raw: dict[str, Any]) -> None:
    """Lfm2MLP's rule for its width; done here, since a null multiplier and an absent one differ."""
    width = raw.get("block_ff_dim")
    if width is None:
        width = raw.get("intermediate_size")
    multiplier = raw.get("block_ffn_dim_multiplier", 1.0)
    multiple = raw.get("block_multiple_of", 256)
    if type(width) is not int or not raw.get("block_auto_adjust_ff_dim", True):
        raw["intermediate_size"] = width
        return
    width = int(2 * width / 3)
    if multiplier is not None:
        for key, value, kinds in (
            ("block_ffn_dim_multiplier", multiplier, (int, float)),
            ("block_multiple_of", multiple, (int,)),
        ):
            if not isinstance(value, kinds) or not value > 0:
                raise ValueError(f"a config with a positive number as {key!r}, not {value!r}")
        width = -(-int(multiplier * width) // multiple) * multiple
    raw["intermediate_size"] = width


def _types_of_layers(raw: Mapping[str, Any]) -> list[str]:
    """By the older key `full_attn_idxs`; without that a dense model is all attention."""
    count, indices = raw.get("num_hidden_layers"), raw.get("full_attn_idxs")
    if type(count) is not int:
        raise ValueError("a config with a number as 'num_hidden_layers'")
    if indices is None:
        if raw.get("model_type") == "lfm2_moe":
            raise ValueError("a mixture of experts with 'layer_types'")
        indices = range(count)
    elif not isinstance(indices, list | tuple):
        raise ValueError(f"a config with a list as 'full_attn_idxs', not {indices!r}")
    return ["full_attention" if index in indices else "conv" for index in range(count)]
