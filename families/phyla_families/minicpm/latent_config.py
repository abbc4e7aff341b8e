"""config.json of MiniCPM3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import Field, model_validator

from phyla.family import DecoderConfig
from phyla_families.minicpm.siblings import refuse_siblings

# Null means none of it; a config that lacks the key says nothing.
_MAY_BE_NULL = ("q_lora_rank", "scale_depth", "dim_model_base")


class LatentConfig(DecoderConfig):
    """MiniCPM3Config.

    Attributes:
        head_dim: the part of a query that is rotated, `qk_rope_head_dim`.
        q_lora_rank: width of the latent that queries come from; None for none.
        v_head_dim: `hidden_size / num_attention_heads` when the key is null.
        scale_emb: multiplies the embeddings.
        scale_depth: each residual branch is multiplied by `scale_depth / sqrt(layers)`, if any.
        dim_model_base: the final hidden states are divided by `hidden_size / dim_model_base`, if
            any.
    """

    family: ClassVar[str] = "minicpm"
    default_rope_theta: ClassVar[float | None] = 10000.0

    kv_lora_rank: int = Field(gt=0)
    q_lora_rank: int | None = Field(default=None, gt=0)
    qk_nope_head_dim: int = Field(gt=0)
    qk_rope_head_dim: int = Field(gt=0)
    v_head_dim: int = Field(gt=0)
    scale_emb: float
    scale_depth: float | None = None
    dim_model_base: int | None = Field(default=None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _read_every_spelling(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = dict(cast("Mapping[str, Any]", data))
        refuse_siblings(raw)
        for key in _MAY_BE_NULL:
            if key not in raw:
                raise ValueError(f"a config with {key!r}, a number or null")
        # Of a head, only this part is rotated; the keys and values that are stored have one head.
        raw["head_dim"] = raw.get("qk_rope_head_dim")
        raw["num_key_value_heads"] = None
        heads, width = raw.get("num_attention_heads"), raw.get("hidden_size")
        if raw.get("v_head_dim") is None and type(heads) is int and type(width) is int and heads:
            raw["v_head_dim"] = width // heads
        return raw
