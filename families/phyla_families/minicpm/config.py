"""config.json of MiniCPM 1 to 4.1 (`minicpm`), and of MiniCPM5, which is a plain Llama."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from phyla.family import DecoderConfig


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


class LlamaConfig(DecoderConfig):
    """MiniCPM5's config.json, which is LlamaConfig."""

    family: ClassVar[str] = "minicpm"
    default_rope_theta: ClassVar[float | None] = 10000.0
