"""Checkpoints that look like Gemma 4 by name, and are something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SIBLINGS: Mapping[str, str] = {
    "gemma4_assistant": (
        "a drafter of Gemma 4 for speculative decoding: it reads the keys, values and hidden "
        "states of the model that it drafts for, and cannot run alone"
    ),
    "gemma4_unified_assistant": (
        "a drafter of Gemma 4 12B for speculative decoding: it reads the keys, values and hidden "
        "states of the model that it drafts for, and cannot run alone"
    ),
    "diffusion_gemma": "a diffusion language model, which does not write one token after another",
    "embedding_gemma2": "an encoder that turns texts into embeddings and writes none",
    "gemma3n": "Gemma 3n, an architecture of its own",
}
