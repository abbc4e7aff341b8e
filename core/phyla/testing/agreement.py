"""Whether two ways to one result agree and, if not, which layer is the first to differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import assert_never

from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding
from phyla.testing.forward import TOLERANCE, assert_close

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from phyla.family import CacheKind
    from phyla.testing.forward import Forward, Run


def assert_chunks_agree(forward: Forward, ids: Sequence[int], *, chunk: int) -> None:
    """Check that a prompt in chunks gives the logits that it gives in one piece.

    Args:
        forward: the model.
        ids: the prompt.
        chunk: how many tokens are read at a time.

    Raises:
        AssertionError: it does not; names the model, the size of the chunks, and the first layer
            that differs, with its cache kind.
    """
    what = f"{forward.name}: {len(ids)} tokens in chunks of {chunk}"
    assert_agree(forward.run(ids, chunk=chunk), forward.run(ids), forward.kinds, what=what)


def assert_agree(found: Run, expected: Run, kinds: Sequence[CacheKind], *, what: str) -> None:
    """Check that two runs have the same logits, at the places that the first one has.

    Args:
        found: the tokens that are looked at.
        expected: a run that holds at least those places.
        kinds: what the model's layers remember.
        what: what was done, and by which model, for the message.

    Raises:
        AssertionError: they do not; names the first layer that differs, and its cache kind.
    """
    expected = expected.part(found.start, len(found.logits))
    try:
        assert_close(found.logits, expected.logits, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}.\n{_first_to_differ(found, expected, kinds)}") from None


def assert_differ(found: ArrayLike, other: ArrayLike, *, what: str) -> None:
    """Check that logits are not the same.

    Raises:
        AssertionError: they are; tells `what` should have made the difference.
    """
    try:
        assert_close(found, other)
    except AssertionError:
        return
    raise AssertionError(f"{what} does not change the logits")


def assert_same_tokens(found: Sequence[int], expected: Sequence[int], *, what: str) -> None:
    """Check that two replies are the same, token by token.

    Raises:
        AssertionError: they are not; tells the first token that differs.
    """
    ours, theirs = list(found), list(expected)
    if ours == theirs:
        return
    pairs = zip(ours, theirs, strict=False)
    shorter = min(len(ours), len(theirs))
    place = next((at for at, (one, other) in enumerate(pairs) if one != other), shorter)
    raise AssertionError(f"{what}: from token {place} on the reply is {ours} instead of {theirs}")


def described(kinds: Sequence[CacheKind], layer: int) -> str:
    """A layer in words: its index, and what it remembers."""
    if layer >= len(kinds):
        return f"layer {layer} (for which cache_kinds() has none)"
    kind = kinds[layer]
    match kind:
        case Full():
            told = "Full"
        case Sliding(window=window):
            told = f"Sliding, window {window}"
        case Recurrent(shapes=shapes):
            told = f"Recurrent, states {' and '.join(map(str, shapes))}"
        case SharedWith(layer=other):
            told = f"SharedWith layer {other}"
        case NoCache():
            told = "NoCache"
        case _:
            assert_never(kind)
    return f"layer {layer} ({told})"


def _first_to_differ(found: Run, expected: Run, kinds: Sequence[CacheKind]) -> str:
    if not found.layers:
        return "Which layer it is cannot be told: the model never calls `step.tap(index, hidden)`."
    for layer in sorted(found.layers.keys() & expected.layers.keys()):
        ours, theirs = found.layers[layer], expected.layers[layer]
        gaps = np.abs(ours - theirs).max(axis=-1)  # (T,)
        off = ~(gaps <= TOLERANCE * np.ptp(theirs))  # also where one of them is nan
        if off.any():
            token = found.start + int(off.argmax())
            return f"The first layer to differ is {described(kinds, layer)}, from token {token} on."
    return "No layer's hidden states differ: look at the final norm and at `logits`."
