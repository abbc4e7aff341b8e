"""A radix tree: which stored sequences begin as a given one does. Knows nothing of caches.

Keys reach a hundred thousand items, so edges are tuples and are compared slice by slice: the loop
over the items runs in C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

V = TypeVar("V")


def common_length(first: Sequence[Hashable], second: Sequence[Hashable], start: int = 0) -> int:
    """How many leading items `first` shares with what `second` holds from `start` on.

    Both are of one type, such as tuples, whose slices compare at C speed.
    """
    high = min(len(first), len(second) - start)
    if first[:high] == second[start : start + high]:
        return high
    low = 0  # the first `low` items agree, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[start + low : start + middle]:
            low = middle
        else:
            high = middle
    return low


class _Node(Generic[V]):
    __slots__ = ("children", "edge", "values")

    def __init__(self, edge: tuple[Hashable, ...]) -> None:
        self.edge = edge
        self.children: dict[Hashable, _Node[V]] = {}
        self.values: list[V] = []

    def below(self) -> Iterator[V]:
        """The values of this node and of all nodes under it."""
        stack: list[_Node[V]] = [self]
        while stack:
            node = stack.pop()
            yield from node.values
            stack.extend(node.children.values())


class RadixTree(Generic[V]):
    """Values by sequence; one sequence may have several values."""

    def __init__(self) -> None:
        self._root: _Node[V] = _Node(())

    def __bool__(self) -> bool:
        """Whether there is any value."""
        return bool(self._root.children or self._root.values)

    def insert(self, key: Sequence[Hashable], value: V) -> None:
        """Put a value under a key, next to those that are there."""
        key = tuple(key)
        node, depth = self._root, 0
        while depth < len(key):
            child = node.children.get(key[depth])
            if child is None:
                child = _Node(key[depth:])
                node.children[key[depth]] = child
                depth = len(key)
            else:
                shared = common_length(child.edge, key, depth)
                if shared < len(child.edge):
                    child = _split(node, child, shared)
                depth += shared
            node = child
        node.values.append(value)

    def remove(self, key: Sequence[Hashable], value: V) -> None:
        """Take a value away.

        Raises:
            KeyError: it is not under this key.
        """
        key = tuple(key)
        trail, depth, partial = self._walk(key)
        node, _ = trail.pop()
        if partial is not None or depth < len(key) or value not in node.values:
            raise KeyError(value)
        node.values.remove(value)
        if trail and not node.values and not node.children:
            parent, _ = trail.pop()
            del parent.children[node.edge[0]]
            node = parent
        if trail and not node.values and len(node.children) == 1:
            _join(trail[-1][0], node)

    def matches(self, key: Sequence[Hashable]) -> Iterator[tuple[int, V]]:
        """Every value, with how many leading items its key shares with `key`.

        Those that share the most come first, and are found without a look at the others: stop
        when the rest is too short. The tree must not change meanwhile.
        """
        trail, depth, seen = self._walk(tuple(key))
        if seen is not None:
            for value in seen.below():
                yield depth, value
        for node, length in reversed(trail):
            for value in node.values:
                yield length, value
            for child in node.children.values():
                if child is not seen:
                    for value in child.below():
                        yield length, value
            seen = node

    def prefixes(self, key: Sequence[Hashable]) -> list[V]:
        """The values whose keys `key` begins with, shortest first; its own are among them."""
        trail, _, _ = self._walk(tuple(key))
        return [value for node, _ in trail for value in node.values]

    def _walk(
        self, key: tuple[Hashable, ...]
    ) -> tuple[list[tuple[_Node[V], int]], int, _Node[V] | None]:
        """Follow a key.

        Returns:
            The nodes reached, each with its depth; the depth at which the key leaves the tree; and
            the node whose edge it leaves half-way, if it does so.
        """
        node, depth = self._root, 0
        trail = [(node, depth)]
        while depth < len(key):
            child = node.children.get(key[depth])
            if child is None:
                break
            shared = common_length(child.edge, key, depth)
            depth += shared
            if shared < len(child.edge):
                return trail, depth, child
            node = child
            trail.append((node, depth))
        return trail, depth, None


def _split(parent: _Node[V], child: _Node[V], at: int) -> _Node[V]:
    """Put a node in the middle of the edge that leads to `child`."""
    middle: _Node[V] = _Node(child.edge[:at])
    parent.children[child.edge[0]] = middle
    child.edge = child.edge[at:]
    middle.children[child.edge[0]] = child
    return middle


def _join(parent: _Node[V], node: _Node[V]) -> None:
    """Replace a node that only leads on by what it leads to."""
    (child,) = node.children.values()
    child.edge = node.edge + child.edge
    parent.children[child.edge[0]] = child
