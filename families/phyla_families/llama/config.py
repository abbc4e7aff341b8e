"""config.json of a plain Llama, as transformers reads it."""

from __future__ import annotations

from typing import ClassVar

from phyla.family import DecoderConfig


class Config(DecoderConfig):
    """LlamaConfig: all the keys that change the computation are shared ones."""

    family: ClassVar[str] = "llama"
    default_rope_theta: ClassVar[float | None] = 10000.0
