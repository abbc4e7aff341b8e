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
    "gemma4_audio": "the audio tower of Gemma 4 without the model behind it",
    "gemma4_vision": "the vision tower of Gemma 4 without the model behind it",
    "gemma4_unified_audio": "the audio part of Gemma 4 12B without the model behind it",
    "gemma4_unified_vision": "the vision part of Gemma 4 12B without the model behind it",
    "diffusion_gemma": "a diffusion language model, which does not write one token after another",
    "diffusion_gemma_text": "the text part of a diffusion language model",
    "embedding_gemma2": "an encoder that turns texts into embeddings and writes none",
    "embedding_gemma2_text": "the text part of an encoder that turns texts into embeddings",
    "gemma": "Gemma 1, an architecture of its own",
    "gemma2": "Gemma 2, an architecture of its own",
    "gemma3": "Gemma 3, an architecture of its own",
    "gemma3_text": "the text part of Gemma 3, an architecture of its own",
    "gemma3n": "Gemma 3n, an architecture of its own",
    "gemma3n_text": "the text part of Gemma 3n, an architecture of its own",
    "gemma3n_audio": "the audio tower of Gemma 3n",
    "gemma3n_vision": "the vision tower of Gemma 3n",
}
