"""The radix tree finds what a look at every key finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phyla.engine.radix import RadixTree, _Node, common_length

if TYPE_CHECKING:
    from random import Random

ITEMS = st.sampled_from([0, 1, b"image", ("audio", 1)])
KEYS = st.lists(ITEMS, max_size=8).map(tuple)
Keys = list[tuple[object, ...]]


def shared_by(first: tuple[object, ...], second: tuple[object, ...]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def filled(keys: Keys) -> RadixTree[int]:
    """A tree whose values are the places of their keys."""
    tree: RadixTree[int] = RadixTree()
    for place, key in enumerate(keys):
        tree.insert(key, place)
    return tree


@given(KEYS, KEYS, st.integers(0, 4))
def test_the_common_length_is_that_of_a_loop(
    first: tuple[object, ...], second: tuple[object, ...], start: int
) -> None:
    start = min(start, len(second))
    assert common_length(first, second, start) == shared_by(first, second[start:])


@given(st.lists(KEYS, max_size=12), st.data())
@example([(0, 1, 0), (0, 1, 1), (0,)], None)
def test_every_value_comes_with_what_its_key_shares_and_the_longest_first(
    keys: Keys, data: st.DataObject | None
) -> None:
    tree = filled(keys)
    kept = dict(enumerate(keys))
    if data is not None:
        for place in data.draw(
            st.sets(st.sampled_from(range(len(keys))) if keys else st.nothing())
        ):
            tree.remove(keys[place], place)
            del kept[place]
    assert bool(tree) == bool(kept)
    for query in [*keys, (0, 1), (b"image", 0, ("audio", 1)), ()]:
        found = list(tree.matches(query))
        assert sorted(found) == sorted((shared_by(k, query), v) for v, k in kept.items())
        assert [shared for shared, _ in found] == sorted((s for s, _ in found), reverse=True)


@given(st.lists(KEYS, max_size=12), KEYS)
def test_prefixes_are_the_keys_that_the_query_begins_with(
    keys: Keys, query: tuple[object, ...]
) -> None:
    found = filled(keys).prefixes(query)
    assert sorted(found) == [v for v, key in enumerate(keys) if query[: len(key)] == key]
    assert [len(keys[v]) for v in found] == sorted(len(keys[v]) for v in found)


@given(st.lists(KEYS, max_size=12), st.randoms())
def test_removing_leaves_the_tree_that_inserting_the_rest_makes(keys: Keys, random: Random) -> None:
    places = list(range(len(keys)))
    random.shuffle(places)
    gone, rest = places[::2], places[1::2]
    tree = filled(keys)
    for place in gone:
        tree.remove(keys[place], place)
    fresh: RadixTree[int] = RadixTree()
    for place in rest:
        fresh.insert(keys[place], place)
    assert shape(tree._root) == shape(fresh._root)


def shape(node: _Node[int]) -> tuple[object, ...]:
    children = {item: shape(child) for item, child in node.children.items()}
    return node.edge, sorted(node.values), children


@pytest.mark.parametrize("key", [(1, 2), (1, 2, 3, 4), (1, 2, 4), (), (9,)])
def test_removing_what_is_not_there_is_refused(key: tuple[int, ...]) -> None:
    tree: RadixTree[str] = RadixTree()
    tree.insert((1, 2, 3), "here")
    with pytest.raises(KeyError):
        tree.remove(key, "here")
    assert list(tree.matches((1, 2, 3))) == [(3, "here")]


def test_keys_of_a_hundred_thousand_items_that_part_late_are_told_apart() -> None:
    long = tuple(range(100_000))
    other = (*long[:99_990], -1, *long[99_991:])
    tree: RadixTree[str] = RadixTree()
    tree.insert(long, "long")
    tree.insert(other, "other")
    assert list(tree.matches((*long, 7))) == [(100_000, "long"), (99_990, "other")]
