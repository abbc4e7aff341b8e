"""Which of several families takes a checkpoint. Pure: knows nothing of entry points and imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from phyla.errors import PluginError, UnsupportedModelError
from phyla.registry.likeness import alike
from phyla.registry.plugin import reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla.family import Family
    from phyla.registry.plugin import BrokenPlugin, Plugin

Claim: TypeAlias = "tuple[Plugin, Family]"


def winners(claims: Sequence[Claim], checkpoint: Checkpoint) -> list[Claim]:
    """The families with the best right to a checkpoint: one, none, or several in a tie.

    Those that recognize it; if none does, those whose model types hold its own and that do not ask.
    A family that fails while it looks does not stand in the way of one that recognizes the
    checkpoint; without such a one the choice would be a guess, so the failure is raised.

    Raises:
        PluginError: a family failed while it looked.
    """
    candidates = [claim for claim in claims if _may_take(claim[1], checkpoint.model_type)]
    recognizing: list[Claim] = []
    plain: list[Claim] = []
    failures: list[PluginError] = []
    for plugin, family in candidates:
        if family.recognizes is None:
            plain.append((plugin, family))
            continue
        try:
            recognized = family.recognizes(checkpoint)
        except Exception as error:  # noqa: BLE001 (a plugin may fail in any way)
            failure = plugin.error(
                f"failed while its family {family.name!r} looked at the checkpoint: "
                f"{reason(error)}",
                hint=f"Decide by hand with {by_hand(candidates)}.",
            )
            failure.__cause__ = error
            failures.append(failure)
        else:
            if recognized:
                recognizing.append((plugin, family))
    if recognizing:
        return recognizing
    if failures:
        raise failures[0]
    return plain


def chosen(claims: Sequence[Claim], checkpoint: Checkpoint) -> list[Claim]:
    """The same among the architectures of one family that the caller named.

    The only one is taken as it is, and so is the only one with the checkpoint's model type: the
    caller knows better than `recognizes`.
    """
    if len(claims) == 1:
        return list(claims)
    holding = [claim for claim in claims if checkpoint.model_type in claim[1].model_types]
    return holding if len(holding) == 1 else winners(claims, checkpoint)


def _may_take(family: Family, model_type: str | None) -> bool:
    if model_type is None:  # only its other files can tell what it is
        return family.recognizes is not None
    return model_type in family.model_types


def tie(claims: Sequence[Claim], model_type: str | None) -> UnsupportedModelError:
    """The error of several families with the same right."""
    names = {family.name for _, family in claims}
    listed = sorted({f"{family.name!r} ({plugin.label})" for plugin, family in claims})
    return UnsupportedModelError(
        f"Several families take model type {model_type!r}: {join(listed)}.",
        model_type=model_type,
        distributions=tuple(sorted({plugin.distribution for plugin, _ in claims})),
        hint=f"Choose with {by_hand(claims)}."
        if len(names) > 1
        else "Two architectures of one family claim it: report that to the package's authors.",
    )


def unclaimed(
    claims: Sequence[Claim],
    model_type: str | None,
    *,
    name: str | None,
    broken: Sequence[BrokenPlugin],
) -> UnsupportedModelError:
    """The error of no family; tells what is close to it, and which plugins are missing and why."""
    for _, family in claims:
        if model_type is not None and (what := family.siblings.get(model_type)):
            types = dict.fromkeys(
                known
                for _, other in claims
                if other.name == family.name
                for known in other.model_types
            )
            return UnsupportedModelError(
                f"Model type {model_type!r} is {what}; no installed family runs it.",
                model_type=model_type,
                hint=f"Use a model of {family.name}: {', '.join(types)}.",
            )
    known = sorted({known for _, family in claims for known in family.model_types})
    who = "No installed family" if name is None else f"No architecture of family {name!r}"
    what = (
        "a checkpoint without a model type" if model_type is None else f"model type {model_type!r}"
    )
    close = [] if model_type is None else alike(model_type, known)
    parts = [f"{who} takes {what}."]
    if close:
        parts.append(f"Model types close to it: {', '.join(close)}.")
    elif known:
        parts.append(f"Known model types: {', '.join(known)}.")
    if broken and name is None:
        failed = (f"{b.entry_point} of {b.distribution} ({b.reason})" for b in broken)
        parts.append(f"Plugins that failed: {'; '.join(failed)}.")
    if name is not None:
        hint = "Leave the family out, or choose another."
    elif close:
        near = [claim for claim in claims if not set(close).isdisjoint(claim[1].model_types)]
        hint = f"Install a package that brings it, or try {by_hand(near)}."
    else:
        hint = "Install a package that brings it."
    return UnsupportedModelError(" ".join(parts), model_type=model_type, hint=hint)


def by_hand(claims: Sequence[Claim]) -> str:
    """How to name one of these families in a call."""
    return join([f'family="{name}"' for name in sorted({f.name for _, f in claims})], "or")


def join(items: Sequence[str], word: str = "and") -> str:
    """Items as a list in a sentence."""
    return f" {word} ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
