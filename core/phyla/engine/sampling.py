"""Turns the logits of one request into its next token. Knows nothing of text, caches or models.

The order is fixed: processors, logit bias, suppressed tokens, penalties, temperature, top-k,
top-p, min-p, draw. What each filter keeps:

- top-k keeps the k likeliest tokens; among equal logits the lower id is the likelier.
- top-p keeps the shortest run of likeliest tokens, in the same order, whose probability reaches p,
  counted within what top-k kept.
- min-p keeps what is at least that fraction of the likeliest token's probability.

Each keeps the likeliest token. Temperature 0 takes it, whatever the filters.

What is fast on a CPU shapes the code (152,000 logits, two cores): argmax takes 0.25 ms, a partition
2 ms, `power(2, x)` 1.6 ms, but `exp` 4 ms and a sort 17 ms. So nothing is computed that the options
do not ask for, weights are powers of two, and only likely tokens are ever sorted.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import mlx.core as mx

from phyla.backend import on_cpu
from phyla.engine.penalties import Penalties, has_penalties
from phyla.errors import PhylaError, PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.engine.resolve import ResolvedOptions
    from phyla.hooks import LogitsProcessor

_LOG2_E = math.log2(math.e)
_MASK_64 = 2**64 - 1
# How many of the likeliest tokens top-p looks at before it sorts the whole vocabulary.
_NUCLEUS = 1024
# Vocabularies are mostly padded to a multiple of this.
_ROW = 128


@dataclass(frozen=True)
class Sampled:
    """One step's choice; every array is lazy.

    Attributes:
        token: the id `[]`, uint32.
        logprob: its log probability `[]`, when the request asked for log probabilities.
        top: ids `[n]` uint32 and log probabilities `[n]` of the n likeliest tokens, best first,
            equals by rising id, when it asked for alternatives.
    """

    token: mx.array
    logprob: mx.array | None = None
    top: tuple[mx.array, mx.array] | None = None

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        """What has to be evaluated before this can be read."""
        logprob = () if self.logprob is None else (self.logprob,)
        return (self.token, *logprob, *(self.top or ()))

    def token_id(self) -> int:
        """The token; waits for it."""
        return cast("int", self.token.item())

    def read_logprobs(self) -> tuple[float, tuple[tuple[int, float], ...]]:
        """The token's log probability, and pairs of id and log probability, best first; waits.

        Only for a request that asked for log probabilities.
        """
        assert self.logprob is not None, "the request did not ask for log probabilities"
        top: tuple[tuple[int, float], ...] = ()
        if self.top is not None:
            ids, values = self.top
            pairs = zip(
                cast("list[int]", ids.tolist()), cast("list[float]", values.tolist()), strict=True
            )
            top = tuple(pairs)
        return cast("float", self.logprob.item()), top


class Sampler:
    """Samples the tokens of one request, one call per step.

    A step's random number depends on the seed and on how many tokens were generated before, and
    on nothing else, so neighbours in a batch and pauses between steps change nothing. `sample`
    builds a graph and does not wait for it, with two exceptions: processors are given the tokens,
    so those must be known; and top-p without top-k on a CPU asks whether the likeliest 1,024
    tokens are enough, since sorting all of them costs more than the wait.

    Args:
        options: the request's options; token ids in them must be in range (`check_token_ids`).
        vocab_size: how many logits there are.
        prompt_ids: the prompt, for penalties whose window covers it.
        processors: run on the logits before anything else, in order.
        limit: how many ids the tokenizer knows. Logits from there on pad the matrix: they are cut
            off first, so they are never sampled and have no share in any probability.
        generated: what an earlier sampler with the same seed generated; this one goes on from
            there.
    """

    def __init__(
        self,
        options: ResolvedOptions,
        vocab_size: int,
        prompt_ids: Sequence[int] = (),
        processors: Sequence[LogitsProcessor] = (),
        *,
        limit: int | None = None,
        generated: Sequence[int] = (),
    ) -> None:
        self._options = options
        self._size = vocab_size if limit is None else min(limit, vocab_size)
        self._step = len(generated)
        self._processors = tuple(processors)
        self._known = list(generated)
        self._unread: list[mx.array] = []
        self._penalties: Penalties | None = None
        if has_penalties(options):
            self._penalties = Penalties(
                options, vocab_size=self._size, prompt=prompt_ids, generated=generated
            )
        self._bias: tuple[mx.array, mx.array] | None = None
        if options.logit_bias:
            ids, values = zip(*options.logit_bias, strict=True)
            self._bias = mx.array(ids, dtype=mx.uint32), mx.array(values, dtype=mx.float32)
        self._suppressed: mx.array | None = None
        if options.suppress_tokens:
            self._suppressed = mx.array(options.suppress_tokens, dtype=mx.uint32)

    @property
    def waits(self) -> bool:
        """Whether `sample` may wait for the token before, instead of only building a graph."""
        options = self._options
        whole_nucleus = options.temperature > 0 and options.top_p < 1 and not options.top_k
        return bool(self._processors) or (whole_nucleus and on_cpu())

    def __copy__(self) -> Sampler:
        """A sampler in the same state, which goes its own way from here."""
        other = Sampler.__new__(Sampler)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(
            _known=list(self._known), _unread=list(self._unread), _penalties=copy(self._penalties)
        )
        return other

    def sample(self, logits: mx.array, *, forced: int | None = None) -> Sampled:
        """Choose the next token from its logits `[V]`, or take `forced` for it.

        Never fails on logits that hold nan or infinities: the token is then one of the likeliest
        where that still means something, and otherwise any valid id.

        Raises:
            PluginError: a processor returned logits of another shape.
        """
        raw = logits[: self._size].astype(mx.float32)
        if forced is None:
            token = self._choose(self._adjusted(raw))
        else:
            token = mx.array(forced, dtype=mx.uint32)
        self._step += 1
        if self._penalties is not None:
            self._penalties.observe(token)
        if self._processors:
            self._unread.append(token)
        if not self._options.logprobs:
            return Sampled(token)
        total = _log_sum_exp(raw)
        top = None
        if self._options.top_logprobs:
            ids = ranked(raw, self._options.top_logprobs)
            top = ids, raw[ids] - total
        return Sampled(token, raw[token] - total, top)

    def _adjusted(self, logits: mx.array) -> mx.array:
        if self._processors:
            self._known.extend(cast("int", token.item()) for token in self._unread)
            self._unread.clear()
            for process in self._processors:
                logits = self._processed(process, logits)
            logits = logits.astype(mx.float32)
        if self._bias is not None:
            ids, values = self._bias
            logits = logits.at[ids].add(values)
        if self._suppressed is not None:
            nothing = mx.full(self._suppressed.shape, -math.inf)
            logits = mx.put_along_axis(logits, self._suppressed, nothing, axis=0)
        return logits if self._penalties is None else self._penalties.apply(logits)

    def _processed(self, process: LogitsProcessor, logits: mx.array) -> mx.array:
        name = getattr(process, "__qualname__", type(process).__name__)
        try:
            changed: object = process(tuple(self._known), logits)
        except PhylaError:
            raise
        except Exception as error:
            raise PluginError(
                f"A logits processor ({name}) failed: {type(error).__name__}: {error}.",
                hint="Report it to the plugin's authors.",
            ) from error
        if not isinstance(changed, mx.array) or changed.shape != (self._size,):
            found = changed.shape if isinstance(changed, mx.array) else type(changed).__name__
            raise PluginError(
                f"A logits processor ({name}) returned {found}, not an array of shape "
                f"{(self._size,)}.",
                hint="Report it to the plugin's authors.",
            )
        return changed

    def _choose(self, logits: mx.array) -> mx.array:
        options = self._options
        if options.temperature == 0 or options.top_k == 1:
            return mx.argmax(logits)
        return draw(
            logits,
            uniform(options.seed, self._step),
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
        )


def uniform(seed: int, step: int) -> float:
    """A random number strictly between 0 and 1 for one step of one request, exact in float32.

    Made on the host by SplitMix64 (Steele, Lea and Flood 2014), so that it is the same on every
    device; the seed is mixed first, so that neighbouring seeds share no run of numbers.
    """
    bits = _mix((_mix(seed) + (step + 1) * 0x9E3779B97F4A7C15) & _MASK_64)
    return ((bits >> 41) + 0.5) / 2**23


def draw(
    logits: mx.array,
    u: float,
    *,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> mx.array:
    """The token `[]` at the quantile `u` of what the filters keep of logits `[V]`, float32."""
    size = logits.shape[0]
    if 0 < top_k < size:
        ids = ranked(logits, top_k)
        weights = _weights(logits[ids], logits[ids[0]], temperature)
        return ids[_pick_ranked(weights, _total(weights), u, top_p=top_p, min_p=min_p)]
    likeliest = mx.argmax(logits)
    weights = _weights(logits, logits[likeliest], temperature)
    if top_p < 1:
        total = _total(weights)
        ids = _nucleus(logits, weights, top_p * total)
        return ids[_pick_ranked(weights[ids], total, u, top_p=top_p, min_p=min_p)]
    if min_p > 0:
        weights = weights * (weights >= min_p)
    return _pick(weights, u, otherwise=likeliest)


def ranked(logits: mx.array, count: int) -> mx.array:
    """The ids `[count]` of the likeliest tokens, best first, equal logits by rising id."""
    # One 64-bit number holds the logit, so that likelier is smaller, above the id, so that ties
    # are settled: floats compare as their bits do, once negative ones are flipped. Adding zero
    # makes -0.0 equal to 0.0.
    bits = (logits + 0.0).view(mx.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    size = logits.shape[0]
    keys = ((~rising).astype(mx.int64) << 32) | mx.arange(size, dtype=mx.int64)
    if count < size:
        keys = mx.partition(keys, kth=count - 1)[:count]
    return (mx.sort(keys) & 0xFFFFFFFF).astype(mx.uint32)


def _nucleus(logits: mx.array, weights: mx.array, goal: mx.array) -> mx.array:
    """Likeliest ids, best first, at least as many as it takes for their weights to reach `goal`."""
    size = logits.shape[0]
    if size > _NUCLEUS and on_cpu():
        ids = ranked(logits, _NUCLEUS)
        if (_total(weights[ids]) >= goal).item():
            return ids
    return ranked(logits, size)


def _pick_ranked(
    weights: mx.array, total: mx.array, u: float, *, top_p: float, min_p: float
) -> mx.array:
    """The index picked from weights `[n]`, best first, after top-p and min-p; 0 if unsound."""
    keep = weights >= min_p
    if top_p < 1:
        before = _cumulative(weights) - weights
        # The first has nothing before it, whatever the rounding: at least one token is kept.
        keep = keep & (before < top_p * total)
    return _pick(weights * keep, u, otherwise=mx.array(0, dtype=mx.uint32))


def _pick(weights: mx.array, u: float, *, otherwise: mx.array) -> mx.array:
    """The index `[]` at quantile `u` of weights `[n]`; `otherwise` where they make no sense."""
    mass = _cumulative(weights)
    goal = u * mass[-1]
    index = mx.argmax(mass > goal)
    # Not sound when a weight is nan or all are zero; also, a parallel cumsum may rise by a rounding
    # error where the weight is zero, and a token that a filter dropped must not come back.
    sound = (mass[index] > goal) & (weights[index] > 0)
    return mx.where(sound, index, otherwise)


def _weights(logits: mx.array, largest: mx.array, temperature: float) -> mx.array:
    """Probabilities up to a factor: the likeliest token's weight is 1."""
    return mx.power(2.0, (logits - largest) * (_LOG2_E / temperature))


def _total(weights: mx.array) -> mx.array:
    return mx.sum(mx.sum(_rows(weights), axis=1))


def _cumulative(weights: mx.array) -> mx.array:
    """Sums `[n]` of the weights up to each, itself included."""
    within = mx.cumsum(_rows(weights), axis=1)
    before = mx.cumsum(within[:, -1], inclusive=False)
    return (within + before[:, None]).reshape(-1)[: weights.shape[0]]


def _rows(weights: mx.array) -> mx.array:
    """Weights `[n]` as rows `[m, 128]`, filled up with zeros."""
    # In one long float32 sum a likely token swallows the many unlikely ones that come after it;
    # summed by rows, it swallows only those of its own row.
    missing = -weights.shape[0] % _ROW
    return (mx.pad(weights, (0, missing)) if missing else weights).reshape(-1, _ROW)


def _log_sum_exp(logits: mx.array) -> mx.array:
    largest = mx.max(logits)
    return largest + mx.log(_total(_weights(logits, largest, 1.0)))


def _mix(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return state ^ (state >> 31)
