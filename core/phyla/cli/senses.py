"""Whether a model reads what a request holds, found out before its weights are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.errors import UnsupportedModalityError
from phyla.modality import MODALITIES, PLURALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla.family import Family
    from phyla.modality import Modality


def check_senses(checkpoint: Checkpoint, family: Family, needed: Sequence[Modality]) -> None:
    """See whether there is a reader for each item.

    Args:
        checkpoint: an opened checkpoint.
        family: the family that runs it.
        needed: what each item of the request is.

    Raises:
        UnsupportedModalityError: one cannot be read.
        PhylaError: what loading the model would raise as it reads its config.
    """
    readers = family.media(family.config.read(checkpoint.config).settle(checkpoint), checkpoint)
    able = [PLURALS[name] for name in MODALITIES if readers.get(name) is not None]
    for index, modality in enumerate(needed):
        if readers.get(modality) is None:
            raise UnsupportedModalityError(
                f"media[{index}]: {checkpoint.name} reads no {PLURALS[modality]}; "
                f"it reads {', '.join(['text', *able])}.",
                modality=modality,
                index=index,
                hint="Leave it out, or choose a model that reads it; `phyla inspect` shows what "
                "one reads.",
            )
