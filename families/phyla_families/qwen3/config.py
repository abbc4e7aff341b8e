"""config.json of Qwen3 and Qwen3-MoE, in the spellings of transformers 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import AliasChoices, Field, model_validator

from phyla.family import DecoderConfig, check_layer_types
from phyla_families.qwen3.siblings import refuse_siblings

if TYPE_CHECKING:
    from typing_extensions import Self

_LAYER_TYPES = ("full_attention", "sliding_attention")


class Config(DecoderConfig):
    """Qwen3Config and Qwen3MoeConfig; `num_experts` is None for a dense model.

    A dense model's head is 128 wide when the key is absent, whatever its hidden size.
    """

    family: ClassVar[str] = "qwen3"

    rms_norm_eps: float = Field(default=1e-6, gt=0)

    use_sliding_window: bool = False
    sliding_window: int | None = Field(default=None, gt=0)
    max_window_layers: int = 28
    layer_types: tuple[str, ...] | None = None

    num_experts: int | None = Field(
        default=None, gt=0, validation_alias=AliasChoices("num_experts", "num_local_experts")
    )
    num_experts_per_tok: int | None = Field(default=None, gt=0)
    moe_intermediate_size: int | None = Field(default=None, gt=0)
    norm_topk_prob: bool = False
    decoder_sparse_step: int = Field(default=1, gt=0)
    mlp_only_layers: tuple[int, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _dense_heads_are_128_wide(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = dict(cast("Mapping[str, Any]", data))
        refuse_siblings(raw)
        if raw.get("model_type") == "qwen3" and raw.get("head_dim") is None:
            raw["head_dim"] = 128
        return raw

    @model_validator(mode="after")
    def _experts_are_described(self) -> Self:
        if self.num_experts is not None:
            for key in ("num_experts_per_tok", "moe_intermediate_size"):
                if getattr(self, key) is None:
                    raise ValueError(f"a mixture of experts with {key!r}")
            chosen = self.num_experts_per_tok
            if chosen is not None and chosen > self.num_experts:
                raise ValueError(
                    f"a mixture of experts with 'num_experts_per_tok' ({chosen}) up to "
                    f"'num_experts' ({self.num_experts})"
                )
        return self

    @model_validator(mode="after")
    def _each_layer_has_a_known_type(self) -> Self:
        if self.num_experts is not None or self.layer_types is None:
            return self  # Qwen3MoeForCausalLM does not read the key.
        check_layer_types(self.layer_types, count=self.num_hidden_layers, known=_LAYER_TYPES)
        return self

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer's MLP is a mixture of experts."""
        return (
            self.num_experts is not None
            and layer not in self.mlp_only_layers
            and (layer + 1) % self.decoder_sparse_step == 0
        )

    def window(self, layer: int) -> int | None:
        """How many tokens a layer sees; None for all."""
        if not self.use_sliding_window or self.sliding_window is None:
            return None
        if self.num_experts is not None:
            # Qwen3MoeForCausalLM reads neither of the keys below: all its layers slide.
            slides = True
        elif self.layer_types is not None:
            slides = self.layer_types[layer] == "sliding_attention"
        else:
            slides = layer >= self.max_window_layers
        return self.sliding_window if slides else None
