"""Checkpoints that look like LFM2 by name or type, and are something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phyla.errors import UnsupportedModelError

SIBLINGS: Mapping[str, str] = {
    "lfm2_audio": "LFM2-Audio, which writes audio tokens beside text",
    "lfm3": "LFM3, an architecture of its own",
    "lfm3_vl": "LFM3-VL, an architecture of its own",
    "lfm3_vl_vision": "the vision tower of LFM3-VL",
}


def refuse_siblings(raw: Mapping[str, Any]) -> None:
    """Look at config.json's content.

    Raises:
        UnsupportedModelError: the checkpoint is no LFM2 that writes text.
    """
    what = _sibling(raw)
    if what is not None:
        raise UnsupportedModelError(
            f"This checkpoint is {what}; the family 'lfm2_vl' runs LFM2, LFM2-MoE and LFM2-VL.",
            model_type=raw.get("model_type"),
            hint="Use one of LiquidAI's chat models, LFM2 or LFM2-VL.",
        )


def _sibling(raw: Mapping[str, Any]) -> str | None:
    kind = str(raw.get("model_type"))
    if kind in SIBLINGS:
        return SIBLINGS[kind]
    automatic = raw.get("auto_map")
    if isinstance(automatic, Mapping) and str(automatic.get("AutoModel")).endswith("D1Model"):
        return "d1, an embedding model made from LFM2-VL's weights"
    names = raw.get("architectures")
    if isinstance(names, list | tuple) and names and all(str(n).endswith("Model") for n in names):
        # ColBERT and the embedding models: attention in both directions, and no head.
        return f"an encoder without a language model's head ({', '.join(map(str, names))})"
    return None
