"""The config keys of a decoder that mixes gated delta nets with gated attention.

Qwen3-Next's, which Qwen3.5 and the models built on it share; see `phyla.nn.HybridDecoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import AliasChoices, Field, model_validator

from phyla.family.decoder import DecoderConfig, check_layer_types

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

_LAYER_TYPES = ("linear_attention", "full_attention")

# Keys of Qwen3-Next that the classes after it do not read, whatever a file says.
_ROUTING = ("norm_topk_prob", "decoder_sparse_step", "mlp_only_layers")
_EXPERTS = ("num_experts", "num_local_experts")

_CONVOLUTION = ".linear_attn.conv1d.weight"


class HybridConfig(DecoderConfig):
    """Keys of Qwen3NextConfig, Qwen3_5TextConfig and Qwen3_5MoeTextConfig.

    A multimodal config is read through its `text_config`; whether the head is tied stands outside.

    Attributes:
        model_type: `qwen3_next`, `qwen3_5_text` or `qwen3_5_moe_text`.
        layer_types: `linear_attention` (a gated delta net) or `full_attention`, one for each layer;
            worked out from `full_attention_interval` when the key is absent.
        num_experts: None for a dense model.
        zero_centred: the norms of the file lie around zero; decided by `settle`.
    """

    model_type: str
    layer_types: tuple[str, ...]
    linear_num_key_heads: int = Field(gt=0)
    linear_num_value_heads: int = Field(gt=0)
    linear_key_head_dim: int = Field(gt=0)
    linear_value_head_dim: int = Field(gt=0)
    linear_conv_kernel_dim: int = Field(gt=1)

    num_experts: int | None = Field(default=None, gt=0, validation_alias=AliasChoices(*_EXPERTS))
    num_experts_per_tok: int | None = Field(default=None, gt=0)
    moe_intermediate_size: int | None = Field(default=None, gt=0)
    shared_expert_intermediate_size: int | None = Field(default=None, gt=0)
    norm_topk_prob: bool = True
    decoder_sparse_step: int = Field(default=1, gt=0)
    mlp_only_layers: tuple[int, ...] = ()

    zero_centred: bool = False

    inner_types: ClassVar[tuple[str, ...]] = ("qwen3_5_text", "qwen3_5_moe_text")

    @model_validator(mode="before")
    @classmethod
    def _read_every_spelling(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = text_keys(cast("Mapping[str, Any]", data))
        kind = raw.get("model_type")
        if kind not in ("qwen3_next", *cls.inner_types):
            names = ", ".join(map(repr, cls.inner_types))
            raise ValueError(f"a config whose text has a 'model_type' of {names}, not {kind!r}")
        unread = (*(_ROUTING if kind != "qwen3_next" else ()),)
        unread += _EXPERTS if kind == "qwen3_5_text" else ()
        raw = {key: value for key, value in raw.items() if key not in unread}
        if any(raw.get(key) == 0 for key in _EXPERTS):  # Qwen3-Next's way to say "dense"
            raw = {key: value for key, value in raw.items() if key not in _EXPERTS}
        elif any(raw.get(key) is not None for key in _EXPERTS):
            # Where every MLP is a mixture of experts, nothing has this width.
            raw.setdefault("intermediate_size", raw.get("moe_intermediate_size"))
        # The classes' own; every published file has them.
        raw.setdefault("head_dim", 256)
        raw.setdefault("partial_rotary_factor", 0.25)
        if kind != "qwen3_next":
            raw.setdefault("mrope_section", [11, 11, 10])
        if "layer_types" not in raw:
            raw["layer_types"] = _types_of_layers(raw)
        return raw

    @model_validator(mode="after")
    def _each_layer_has_a_known_type(self) -> Self:
        check_layer_types(self.layer_types, count=self.num_hidden_layers, known=_LAYER_TYPES)
        return self

    @model_validator(mode="after")
    def _value_heads_group_evenly(self) -> Self:
        keys, values = self.linear_num_key_heads, self.linear_num_value_heads
        if values % keys:
            raise ValueError(
                f"a config with 'linear_num_value_heads' ({values}) a multiple of "
                f"'linear_num_key_heads' ({keys})"
            )
        return self

    @model_validator(mode="after")
    def _experts_are_described(self) -> Self:
        if self.num_experts is None:
            return self
        for key in ("num_experts_per_tok", "moe_intermediate_size"):
            if getattr(self, key) is None:
                raise ValueError(f"a mixture of experts with {key!r}")
        if self.shared_expert_intermediate_size is None:
            raise ValueError("a mixture of experts with 'shared_expert_intermediate_size'")
        chosen = self.num_experts_per_tok
        if chosen is not None and chosen > self.num_experts:
            raise ValueError(
                f"a mixture of experts with 'num_experts_per_tok' ({chosen}) up to 'num_experts' "
                f"({self.num_experts})"
            )
        return self

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Decide by the files whether there is a head, and how the norms are stored."""
        settled = super().settle(checkpoint)
        return settled.model_copy(update={"zero_centred": is_upstream(checkpoint)})

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer's MLP is a mixture of experts."""
        return (
            self.num_experts is not None
            and layer not in self.mlp_only_layers
            and (layer + 1) % self.decoder_sparse_step == 0
        )


def is_upstream(checkpoint: Checkpoint) -> bool:
    """Whether the tensors lie as Hugging Face writes them, not as MLX conversions do.

    Those have kernels `[C, K, 1]` instead of `[C, 1, K]`, and one added to all norms but the gated
    ones. Names do not tell: conversions exist under both, with and without `mtp.*`
    (ml-explore/mlx-lm#1623, Blaizzy/mlx-vlm#1528).
    """
    return any(
        name.endswith(_CONVOLUTION) and tensor.shape[-1] != 1
        for name, tensor in checkpoint.tensors.items()
    )


def text_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config's text part, without those that are null.

    `tie_word_embeddings` is the outer config's, even where that does not have it: the inner one may
    hold the default of a class that does not decide.
    """
    inner = raw.get("text_config")
    if not isinstance(inner, Mapping):
        if inner is not None:
            raise ValueError("a config with an object as 'text_config'")
        return {str(key): value for key, value in raw.items() if value is not None}
    keys = cast("Mapping[str, Any]", inner)
    merged = {str(key): value for key, value in keys.items() if value is not None}
    merged.pop("tie_word_embeddings", None)
    if raw.get("tie_word_embeddings") is not None:
        merged["tie_word_embeddings"] = raw["tie_word_embeddings"]
    return merged


def _types_of_layers(raw: Mapping[str, Any]) -> list[str]:
    count, interval = raw.get("num_hidden_layers"), raw.get("full_attention_interval", 4)
    if type(count) is not int or type(interval) is not int or interval < 1:
        raise ValueError("a config with 'layer_types', or 'full_attention_interval'")
    return [_LAYER_TYPES[(layer + 1) % interval == 0] for layer in range(count)]
