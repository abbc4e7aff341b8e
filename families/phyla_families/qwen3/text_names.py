"""The names of the text part in the multimodal checkpoints of Qwen3, as rules.

They come as Hugging Face publishes them (`model.language_model.`), as MLX conversions do
(`language_model.model.`), and as the first releases did (`language_model.`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence


def text_names(*, tied: bool) -> Sequence[WeightRule]:
    """Drop what drafts tokens ahead; leave the text part's names without a prefix.

    Args:
        tied: the head is the embedding's transpose, and a copy of it is dropped.
    """
    return [
        Rename(
            r"(?:model\.language_model|language_model\.model|language_model|model)\.(.*)", r"\1"
        ),
        Drop(r"mtp\..*"),
        *([Drop(r"lm_head\..*")] if tied else []),
    ]
