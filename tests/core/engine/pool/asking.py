"""Short words for what requests ask of a pool, with a text for a prompt."""

from __future__ import annotations

from tests.core.engine.pool.token_layers import Clock, Kind, State, Tokens

from phyla.caching import CacheLimits
from phyla.engine.pool import Key, Lease, Pin, Pool


def pool_of(
    bytes: int | None = None,  # noqa: A002
    *,
    entries: int = 64,
    idle_seconds: float | None = None,
    min_tokens: int = 1,
) -> Pool[Tokens]:
    limits = CacheLimits(bytes, entries, idle_seconds, min_tokens)
    return Pool(limits, clock=Clock())


def clock_of(pool: Pool[Tokens]) -> Clock:
    clock = pool.clock
    assert isinstance(clock, Clock)
    return clock


def key_of(text: str, *spans: tuple[int, int]) -> Key:
    return Key(tuple(text), spans)


def fed(kind: Kind, text: str) -> Tokens:
    layers = Tokens(kind)
    layers.append(*text)
    return layers


def states(kind: Kind, text: str, *lengths: int) -> list[State]:
    return [State(kind, tuple(text[:length])) for length in lengths]


def put(
    pool: Pool[Tokens],
    text: str,
    *spans: tuple[int, int],
    kind: Kind = "attention",
    at: tuple[int, ...] = (),
    stable: int | None = None,
    pins: tuple[Pin, ...] = (),
    namespace: str = "",
) -> Tokens:
    """Store a sequence that was run cold, with snapshots at some lengths."""
    layers = fed(kind, text)
    pool.store(
        None,
        key_of(text, *spans),
        layers,
        snapshots=states(kind, text, *at),
        stable=len(text) if stable is None else stable,
        namespace=namespace,
        pins=pins,
    )
    return layers


def hit(pool: Pool[Tokens], text: str, *spans: tuple[int, int], namespace: str = "") -> int:
    """How much of it is cached; nothing changes."""
    return pool.explain(key_of(text, *spans), namespace=namespace).cached_tokens


def held(lease: Lease[Tokens]) -> str:
    assert lease.layers is not None
    return "".join(str(token) for token in lease.layers.tokens)


def pin_at(length: int, *, until: float = 200.0, name: str | None = None, owner: object = None):
    return Pin(length, until, name, owner)
