"""Parity with transformers on tiny random models: the same logits, the same greedy tokens.

Needs the `parity` extra. A family's test module::

    from pathlib import Path

    from phyla.testing import read_tiny
    from phyla.testing.parity import Parity, pairs

    pair = pairs(read_tiny(Path(__file__).with_name("tiny.json")))


    class TestParity(Parity):
        pass
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from phyla.testing.agreement import assert_same_tokens
from phyla.testing.forward import Forward, assert_close
from phyla.testing.reference import RESAVED_CONFIG, Reference, write_reference_checkpoint
from phyla.testing.tiny import prompt_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from phyla.testing.tiny import Tiny

PROMPT = prompt_ids(40)
LONG_PROMPT = prompt_ids(150, seed=1)
GREEDY_TOKENS = 64


def write_for_itself(tiny: Tiny, folder: Path) -> Path:
    """Write a checkpoint that both sides can read; returns the reference's folder, the same."""
    return write_reference_checkpoint(folder, tiny.config, chat_template=tiny.chat_template)


@dataclass(frozen=True)
class Pair:
    """A tiny checkpoint in Phyla and in transformers."""

    name: str
    folder: Path
    forward: Forward
    reference: Reference

    @functools.cached_property
    def logits(self) -> NDArray[np.float32]:
        """The reference's logits for `PROMPT`."""
        return self.reference.logits(PROMPT)


def pairs(
    table: Mapping[str, Tiny], write: Callable[[Tiny, Path], Path] = write_for_itself
) -> Callable[..., Pair]:
    """A module-scoped fixture that runs through a table of tiny configs; call it `pair`.

    Args:
        table: the tiny configs.
        write: writes one into a folder, and returns the folder of a checkpoint in which
            transformers computes the same; for a family that transformers does not have.
    """

    @pytest.fixture(scope="module", params=list(table))
    def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
        tiny = table[request.param]
        folder = tmp_path_factory.mktemp("pair") / "tiny"
        reference = write(tiny, folder)
        return Pair(tiny.name, folder, Forward(folder), Reference(reference))

    return pair


class Parity:
    """The suite; subclass it next to a `pair` fixture and mark the module `parity`."""

    @pytest.mark.parametrize("chunk", [None, 1, 7, 13])
    def test_logits_equal_the_references(self, pair: Pair, chunk: int | None) -> None:
        what = f"{pair.name}: chunks of {chunk or 'all tokens'}"
        assert_close(pair.forward.logits(PROMPT, chunk=chunk), pair.logits, what=what)

    def test_logits_of_a_long_prompt_equal_the_references(self, pair: Pair) -> None:
        expected = pair.reference.logits(LONG_PROMPT)
        for chunk in (None, 64):
            what = f"{pair.name}: {len(LONG_PROMPT)} tokens in chunks of {chunk or 'all'}"
            assert_close(pair.forward.logits(LONG_PROMPT, chunk=chunk), expected, what=what)

    @pytest.mark.parametrize("chunk", [1, 7, 13])
    def test_decoding_step_by_step_equals_the_reference(self, pair: Pair, chunk: int) -> None:
        found = pair.forward.decoded(PROMPT, prompt=20, chunk=chunk)
        what = f"{pair.name}: 20 tokens in chunks of {chunk}, then one by one"
        assert_close(found, pair.logits[19:], what=what)

    def test_after_a_snapshot_is_restored_logits_equal_the_references(self, pair: Pair) -> None:
        cursor = pair.forward.cursor(len(PROMPT) + len(LONG_PROMPT))
        cursor.prefill(PROMPT[:17], chunk=7)
        snapshot = cursor.layers.snapshot()
        cursor.prefill(LONG_PROMPT[:30], chunk=16)
        cursor.layers.restore(snapshot)
        again = pair.forward.cursor(len(PROMPT), cursor.layers)
        for stop in range(18, len(PROMPT) + 1):
            found = again.prefill(PROMPT[stop - 1 : stop], chunk=1)
            what = f"{pair.name}: token {stop - 1}, after a snapshot at 17 was restored"
            assert_close(found, pair.logits[stop - 1], what=what)

    def test_greedy_tokens_equal_the_references(self, pair: Pair) -> None:
        expected, _ = pair.reference.greedy(PROMPT, GREEDY_TOKENS)
        found = pair.forward.greedy(PROMPT, GREEDY_TOKENS)
        assert_same_tokens(found, expected, what=f"{pair.name}: a greedy reply")

    def test_the_config_as_transformers_writes_it_gives_the_same(
        self, pair: Pair, tmp_path: Path
    ) -> None:
        if not (pair.folder / RESAVED_CONFIG).exists():
            pytest.skip("transformers has no config of this architecture")
        for file in pair.folder.iterdir():
            (tmp_path / file.name).symlink_to(file)
        (tmp_path / "config.json").unlink()
        (tmp_path / RESAVED_CONFIG).rename(tmp_path / "config.json")
        what = f"{pair.name}: with the config as transformers writes it"
        assert_close(Forward(tmp_path).logits(PROMPT), pair.logits, what=what)
