"""The declaration that a family's plugin makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from phyla.family.dialect import Dialect
from phyla.family.media import MediaReaders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from phyla.checkpoint import Checkpoint
    from phyla.family.config import FamilyConfig
    from phyla.family.model import Model
    from phyla.family.weights import WeightRule


def _no_rules(config: object, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    return ()


def _no_media(config: object, checkpoint: Checkpoint) -> MediaReaders:
    return MediaReaders()


def _plain_dialect(checkpoint: Checkpoint) -> Dialect:
    return Dialect(name="plain")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture of a model family: what it is called, and the parts that make it run.

    A family with several architectures provides one value for each, under the same name and with
    model types of its own.

    Attributes:
        name: the family's name, as in `family="qwen3"`.
        model_types: values of config.json's `model_type` that it can take.
        config: reads config.json.
        model: builds the model from the config; parameters need not be evaluated.
        weights: rules from the checkpoint's tensor names to the model's; a function may look at the
            config and the checkpoint first.
        recognizes: for model types that several families share: whether this checkpoint is this
            family's, from its template or names. One that recognizes wins over one that does not
            ask; one that asks and does not recognize is out.
        dialect: looks at the checkpoint and says how its text is marked.
        media: what the checkpoint can read beside text, and how; a function of the settled config
            and the checkpoint, so that a tower which the file lacks is no promise.
        siblings: what looks like this family by name and is something else: by model type, the
            words that say what it is. Such a checkpoint that nobody takes is refused with them.
    """

    name: str
    model_types: tuple[str, ...]
    config: type[FamilyConfig]
    model: Callable[[Any], Model]
    weights: Callable[[Any, Checkpoint], Sequence[WeightRule]] = _no_rules
    recognizes: Callable[[Checkpoint], bool] | None = None
    dialect: Callable[[Checkpoint], Dialect] = _plain_dialect
    media: Callable[[Any, Checkpoint], MediaReaders] = _no_media
    siblings: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
