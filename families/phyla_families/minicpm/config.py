"""config.json of MiniCPM 1 to 4.1 (`minicpm`), and of MiniCPM5, which is a plain Llama."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import Field, model_validator

from phyla.family import DecoderConfig
from phyla_families.minicpm.siblings import refuse_siblings


class Config(DecoderConfig):
    """MiniCPMConfig of the published remote code; the three scalings are its own.

    Attributes:
        scale_emb: multiplies the embeddings.
        scale_depth: each residual branch is multiplied by `scale_depth / sqrt(layers)`.
        dim_model_base: the final hidden states are divided by `hidden_size / dim_model_base`.
    """

    family: ClassVar[str] = "minicpm"
    default_rope_theta: ClassVar[float | None] = 10000.0

    scale_emb: float
    scale_depth: float
    dim_model_base: int = Field(gt=0)

    @model_validator(mode="before")
    @classmethod
    def _is_no_sibling(cls, data: object) -> object:
        if isinstance(data, Mapping):
            refuse_siblings(cast("Mapping[str, Any]", data))
        return data


class LlamaConfig(DecoderConfig):
    """MiniCPM5's config.json, which is LlamaConfig."""

    family: ClassVar[str] = "minicpm"
    default_rope_theta: ClassVar[float | None] = 10000.0
