"""Requests in any order are given what was fed, within the limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakSet

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.core.engine.pool.token_layers import KINDS, Clock, Kind, State, Tokens

from phyla.caching import CacheLimits
from phyla.engine.pool import Key, Lease, Pin, Pool

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(eq=False)
class Request:
    namespace: str
    key: Key
    lease: Lease[Tokens]
    layers: Tokens
    snapshots: list[State] = field(default_factory=list)


Span = tuple[int, int]
NAMESPACES = st.sampled_from(["one", "two"])
# What to go on from: which of the latest, and how many of its tokens to leave away.
STARTS = st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8]))
TEXTS = st.text("ab", min_size=1, max_size=6)
SPANS = st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 4), st.integers(1, 4)))
CHUNKS = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=4)
# How long the key's tail is that is not stable; pins as length, time to live and name.
TAILS = st.integers(0, 6)
PINS = st.lists(
    st.tuples(st.integers(1, 12), st.integers(5, 60), st.sampled_from([None, None, "x"])),
    max_size=2,
)


class AnyOrder(RuleBasedStateMachine):
    """Requests come, run, end and fail; the pool is held against the tokens themselves."""

    requests = Bundle("requests")
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(
        kind=st.sampled_from(KINDS),
        limit=st.sampled_from([None, 40, 80, 160]),
        entries=st.sampled_from([2, 5, 64]),
        idle=st.sampled_from([None, 30.0]),
    )
    def begin(self, kind: Kind, limit: int | None, entries: int, idle: float | None) -> None:
        self.kind: Kind = kind
        self.clock = Clock()
        self.pool: Pool[Tokens] = Pool(CacheLimits(limit, entries, idle, 2), self.clock)
        self.alive: WeakSet[Tokens] = WeakSet()
        self.running: list[Request] = []
        self.fed: list[tuple[str, Key]] = []
        self.pins: list[tuple[str, tuple[object, ...], Pin]] = []

    # What a request does

    def acquire(
        self, namespace: str, start: tuple[int, int], text: str, span: Span | None
    ) -> Request:
        """With a prompt that goes on with, or parts from, something that was fed before."""
        which, back = start
        base = self.fed[-1 - which % len(self.fed)][1] if self.fed else Key(())
        base = base.cut(max(0, len(base) - back))
        # Half a media item is no prompt.
        base = base.cut(min((a for a, b in base.spans if b > len(base)), default=len(base)))
        spans, new = base.spans, list(text)
        if span is not None and span[0] < len(new):
            first, last = span[0], min(sum(span), len(new))
            new[first:last] = [str(last - first)] * (last - first)
            spans = (*spans, (len(base) + first, len(base) + last))
        # A tenant's tokens are marked as its own.
        items = tuple(f"{namespace}{str(item)[-1]}" for item in (*base.items, *new))
        key = Key(items, spans)
        explanation = self.pool.explain(key, namespace=namespace)
        expected = self.longest(namespace, key)
        lease = self.pool.acquire(key, namespace=namespace)
        assert lease.explanation == explanation
        assert explanation.cached_tokens == lease.length == expected
        assert lease.length < len(key)
        assert not any(a < lease.length < b for a, b in key.spans)
        layers = lease.layers or Tokens(self.kind, alive=self.alive)
        assert layers.tokens == key.items[: lease.length]
        for kept in lease.snapshots:
            assert isinstance(kept, State)
            assert kept.tokens == key.items[: kept.length]
        self.seen["lent" if lease.lent else "forked" if lease.length else "cold"] += 1
        self.seen["restored"] += lease.explanation.limited_by == "snapshot" and lease.length > 0
        request = Request(namespace, key, lease, layers)
        self.running.append(request)
        return request

    def longest(self, namespace: str, key: Key) -> int:
        """The best length by trying every length at every entry."""
        return max(
            (
                length
                for entry in self.pool._shelf.entries
                if entry.namespace == namespace and not self.pool._shelf.idle(entry, self.clock.now)
                for length in range(2, min(len(key) - 1, len(entry.key)) + 1)
                if entry.key.items[:length] == key.items[:length]
                and not any(a < length < b for a, b in (*key.spans, *entry.key.spans))
                and (
                    entry.layers.floor <= length <= entry.layers.length
                    or any(kept.length == length for kept in entry.snapshots)
                )
            ),
            default=0,
        )

    def feed(self, request: Request, chunks: list[tuple[int, bool]]) -> None:
        """Chunks of the prompt, and then of the reply; after some of them, a snapshot."""
        for count, snapshot in chunks:
            done = request.layers.length
            if done == len(request.key):
                reply = tuple(f"{request.namespace}{item}" for item in "abcabc"[:count])
                request.key = Key(request.key.items + reply, request.key.spans)
            request.layers.append(*request.key.items[done : done + count])
            if snapshot:
                request.snapshots.append(request.layers.snapshot())

    def store(self, request: Request, tail: int, pins: list[tuple[int, int, str | None]]) -> None:
        namespace = request.namespace
        made = [Pin(n, self.clock.now + ttl, name, request) for n, ttl, name in pins]
        key = request.key.cut(request.layers.length)
        self.pool.store(
            request.lease,
            request.key,
            request.layers,
            snapshots=request.snapshots,
            stable=max(0, len(key) - tail),
            namespace=namespace,
            pins=made,
        )
        self.forget(request)
        self.fed.append((namespace, key))
        placed = {
            id(pin)
            for entry in self.pool._shelf.entries
            for pin in entry.pins
            if pin.owner is request
        }
        self.expect(namespace, key, [pin for pin in made if id(pin) in placed])

    def forget(self, request: Request) -> None:
        self.running.remove(request)
        request.layers, request.snapshots = Tokens(self.kind), []  # hypothesis holds on to it

    def expect(self, namespace: str, key: Key, placed: Iterable[Pin]) -> None:
        for pin in placed:
            self.seen["pinned"] += 1
            self.pins = [
                p for p in self.pins if p[0] != namespace or not p[2].name or p[2].name != pin.name
            ]
            self.pins.append((namespace, key.items[: pin.length], pin))

    # In any order

    @rule(
        namespace=NAMESPACES,
        start=STARTS,
        text=TEXTS,
        span=SPANS,
        chunks=CHUNKS,
        tail=TAILS,
        pins=PINS,
    )
    def turn(
        self,
        namespace: str,
        start: tuple[int, int],
        text: str,
        span: Span | None,
        chunks: list[tuple[int, bool]],
        tail: int,
        pins: list[tuple[int, int, str | None]],
    ) -> None:
        """A request from beginning to end, with no other in between."""
        request = self.acquire(namespace, start, text, span)
        rest = len(request.key) - request.layers.length
        self.feed(request, [(rest - rest // 2, True), (max(1, rest // 2), False), *chunks])
        self.store(request, tail, pins)

    @rule(
        target=requests,
        namespace=NAMESPACES,
        start=STARTS,
        text=TEXTS,
        span=SPANS,
        chunks=CHUNKS,
    )
    def arrive(
        self,
        namespace: str,
        start: tuple[int, int],
        text: str,
        span: Span | None,
        chunks: list[tuple[int, bool]],
    ) -> Request:
        request = self.acquire(namespace, start, text, span)
        self.feed(request, chunks)
        return request

    @rule(request=requests, chunks=CHUNKS)
    def run(self, request: Request, chunks: list[tuple[int, bool]]) -> None:
        self.feed(request, chunks)

    @rule(request=consumes(requests), tail=TAILS, pins=PINS)
    def end(self, request: Request, tail: int, pins: list[tuple[int, int, str | None]]) -> None:
        """It ends by itself, or is cancelled, be it in the prefill."""
        self.store(request, tail, pins)

    @rule(request=consumes(requests))
    def fail(self, request: Request) -> None:
        lent = request.lease.entry
        lost = {id(pin) for pin in lent.pins} if lent else set()
        self.pool.release(request.lease)
        self.pool.drop_pins(request)
        self.forget(request)
        self.pins = [p for p in self.pins if id(p[2]) not in lost and p[2].owner is not request]

    @precondition(lambda self: self.fed)
    @rule(
        which=st.integers(0, 3),
        length=st.integers(1, 12),
        ttl=st.integers(5, 60),
        name=st.sampled_from([None, "x", "y"]),
    )
    def pin(self, which: int, length: int, ttl: int, name: str | None) -> None:
        namespace, key = self.fed[-1 - which % len(self.fed)]
        pin = Pin(length, self.clock.now + ttl, name, self)
        self.expect(namespace, key, self.pool.add_pins(key, [pin], namespace=namespace))

    @rule(name=st.sampled_from(["x", "y"]), namespace=NAMESPACES)
    def unpin(self, name: str, namespace: str) -> None:
        now = self.clock.now
        gone = [p for p in self.pins if p[0] == namespace and p[2].name == name]
        found = self.pool.unpin(name, namespace=namespace)
        assert found == any(now < pin.deadline for _, _, pin in gone)
        self.pins = [p for p in self.pins if not any(p is other for other in gone)]

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds
        self.pool.expire()

    @rule(nbytes=st.integers(0, 80))
    def shrink(self, nbytes: int) -> None:
        self.pool.shrink_to(nbytes)
        now = self.clock.now
        assert self.pool.nbytes <= nbytes or all(
            entry.stripped(now) for entry in self.pool._shelf.entries if not entry.lent
        )

    @rule()
    def clear(self) -> None:
        self.pool.clear()
        self.pins = []
        assert self.pool.nbytes == 0
        assert set(self.alive) == {request.layers for request in self.running}

    # What always holds

    @invariant()
    def limits_hold(self) -> None:
        limits, entries = self.pool.limits, self.pool._shelf.entries
        kept = [entry for entry in entries if not entry.lent]
        held = sum(e.layers.nbytes + sum(s.nbytes for s in e.snapshots) for e in kept)
        assert self.pool.nbytes == held
        assert limits.bytes is None or held <= limits.bytes
        assert len(kept) <= limits.entries

    @invariant()
    def entries_hold_what_was_fed_and_nothing_of_others(self) -> None:
        for entry in self.pool._shelf.entries:
            assert entry.layers.tokens[: len(entry.key)] == entry.key.items
            assert all(str(item).startswith(entry.namespace) for item in entry.key.items)
            for kept in entry.snapshots:
                assert isinstance(kept, State)
                assert kept.tokens == entry.key.items[: kept.length]
        for request in self.running:
            assert request.layers.tokens == request.key.items[: request.layers.length]

    @invariant()
    def pins_are_found_until_their_deadline(self) -> None:
        for namespace, items, pin in self.pins:
            if self.clock.now < pin.deadline:
                key = Key((*items, "and more"))
                assert self.pool.pinned_length(key, namespace=namespace) == len(items)
                found = self.pool.explain(key, namespace=namespace)
                assert found.cached_tokens == len(items)

    def teardown(self) -> None:
        self.seen["evicted"] += self.pool.stats().evictions
        self.pool.clear()
        for request in list(self.running):
            self.pool.release(request.lease)
            self.forget(request)
        assert not self.alive
        assert not self.pool._shelf._trees


def test_requests_in_any_order_are_given_what_was_fed_within_the_limits() -> None:
    AnyOrder.seen.clear()
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=30,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
    # A machine that never gets anywhere would find nothing wrong.
    assert min(AnyOrder.seen[what] for what in ("cold", "forked", "lent", "pinned")) > 0
