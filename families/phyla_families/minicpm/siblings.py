"""Checkpoints that look like MiniCPM by name or type, and are something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phyla.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIBLINGS: Mapping[str, str] = {
    "minicpmv": "MiniCPM-V 4.5 or older, which runs only with code of its own",
    "minicpmo": "MiniCPM-o, which hears and speaks, and runs only with code of its own",
    "minicpm_ocr": "MiniCPM-OCR, an architecture of its own",
    "minicpm_sala": "MiniCPM-SALA, which mixes sparse and linear attention",
}


def refuse_siblings(raw: Mapping[str, Any]) -> None:
    """Look at config.json's content.

    Raises:
        UnsupportedModelError: the checkpoint is no MiniCPM that the family runs.
    """
    kind = raw.get("model_type")
    what = SIBLINGS.get(str(kind))
    if what is None and raw.get("num_experts") is not None:
        what = "MiniCPM-MoE, a mixture of experts"
    if what is not None:
        raise UnsupportedModelError(
            f"This checkpoint is {what}; the family 'minicpm' runs MiniCPM 1 to 5 and MiniCPM-V "
            f"4.6 and 4.7.",
            model_type=kind if isinstance(kind, str) else None,
            hint="Use MiniCPM5 or MiniCPM-V 4.6.",
        )
