"""The gated delta rule (Yang et al. 2024, arXiv:2412.06464): a linear memory that corrects itself.

A head's memory S, `[key_dim, value_dim]`, decays, is asked what it holds for the new key, and is
moved towards the new value by a fraction beta of the error::

    S = exp(g) S
    u = beta (v - S^T k)
    S = S + k u^T
    o = S^T q

All in float32, whatever the activations are: the state is a sum over the whole past.

Many tokens go in chunks (the paper's section 3.3). In a chunk, with G the running sum of g and
`L[i, j] = exp(G_i - G_j)` for j up to i, the corrections u of all its tokens solve one triangular
system, `(I + A) u = beta (v - exp(G) S^T k)` with `A = beta (K K^T) L` below the diagonal. All
systems are inverted at once; what goes from chunk to chunk is a few products with S.

One token that forgets everything makes G so large that the small g beside it would drown in it.
So G is kept as the sum of two: of multiples of a power of two, which is exact, and of what is left.
"""

from __future__ import annotations

import math

import mlx.core as mx

from phyla.backend import on_cpu

# Tokens in a chunk. Longer ones spend more on the system, shorter ones take more steps in sequence.
_CHUNK = 64
_CHUNK_ON_CPU = 32

_LOG2_E = math.log2(math.e)

# The exponential of this, and of anything below, is zero in float32.
_FORGOTTEN = -104.0
# Multiples of it, up to the sum of a chunk's decays, are exact in float32: 64 * 104 * 2**11 < 2**24.
_COARSE = 2.0**-11


def gated_delta_rule(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    decay: mx.array,
    beta: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """Read and update the memories with T tokens.

    Key head k serves the value heads `k * R` to `k * R + R - 1`.

    Args:
        queries: `[B, T, K, key_dim]`, scaled.
        keys: `[B, T, K, key_dim]`, of length 1 or less.
        values: `[B, T, V, value_dim]`, with V = K * R.
        decay: g `[B, T, V]`, the logarithm of what a memory is multiplied by; not positive.
        beta: `[B, T, V]`, between 0 and 1.
        state: S before the first token, `[B, V, key_dim, value_dim]`.

    Returns:
        The outputs `[B, T, V, value_dim]` and the state after the last token, both float32.
    """
    queries, keys, values, decay, beta, state = (
        each.astype(mx.float32) for each in (queries, keys, values, decay, beta, state)
    )
    if queries.shape[1] == 1:
        step = _step if on_cpu() else _compiled_step
        out, state = step(queries[:, 0], keys[:, 0], values[:, 0], decay[:, 0], beta[:, 0], state)
        return out[:, None], state
    return _in_chunks(queries, keys, values, decay, beta, state)


def _step(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    decay: mx.array,
    beta: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """One token.

    The old memory is read once for both the key and the query: what the query finds in the new one
    follows, `o = exp(g) S^T q + (k . q) u`.
    """
    group = value.shape[1] // key.shape[1]
    both = mx.stack([key, query], axis=2)  # (B, K, 2, key_dim)
    overlap = (key * query).sum(axis=-1)[..., None]  # (B, K, 1)
    if group > 1:
        both, overlap = mx.repeat(both, group, axis=1), mx.repeat(overlap, group, axis=1)
    kept = mx.exp(decay)[..., None]  # (B, V, 1)
    read = (both @ state) * kept[..., None]  # (B, V, 2, value_dim)
    change = (value - read[:, :, 0]) * beta[..., None]
    out = read[:, :, 1] + overlap * change
    state = state * kept[..., None] + both[:, :, 0, :, None] * change[:, :, None, :]
    return out, state


_compiled_step = mx.compile(_step)


def _in_chunks(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    beta: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    rows, length, key_heads, key_dim = keys.shape
    value_heads, value_dim = values.shape[2:]
    group = value_heads // key_heads
    size = min(_CHUNK_ON_CPU if on_cpu() else _CHUNK, 1 << (length - 1).bit_length())

    # The axes below are (B, K, R, chunks, size, ...), and R is 1 for queries and keys.
    keys = _cut(keys, size, key_heads, 1)
    both = mx.concatenate([keys, _cut(queries, size, key_heads, 1)], axis=-2)
    turned = keys.swapaxes(-1, -2)
    values = _cut(values, size, key_heads, group)
    beta = _cut(beta[..., None], size, key_heads, group)
    coarse, fine = _running_sum(_cut(decay[..., None], size, key_heads, group)[..., 0])  # G

    place = mx.arange(size)
    # Hidden before the exponential: what lies above the diagonal may overflow.
    gaps = (coarse[..., None] - coarse[..., None, :]) + (fine[..., None] - fine[..., None, :])
    lasting = _exp(mx.where(place[:, None] >= place, gaps, -math.inf))  # L
    since_start = _exp(coarse + fine)[..., None]
    until_end = _exp((coarse[..., -1:] - coarse) + (fine[..., -1:] - fine))[..., None]

    overlaps = both @ turned  # (B, K, 1, chunks, 2 * size, size)
    system = mx.where(place[:, None] > place, overlaps[..., :size, :] * (lasting * beta), 0.0)
    solved = _unit_lower_inverse(system)
    seen = overlaps[..., size:, :] * lasting

    state = state.reshape(rows, key_heads, group, key_dim, value_dim)
    outputs: list[mx.array] = []
    for chunk in range(values.shape[3]):
        at = (slice(None), slice(None), slice(None), chunk)
        read = both[at] @ state
        known = read[..., :size, :] * since_start[at]
        changes = solved[at] @ ((values[at] - known) * beta[at])
        outputs.append(read[..., size:, :] * since_start[at] + seen[at] @ changes)
        kept = since_start[at][..., -1:, :]
        state = state * kept + turned[at] @ (changes * until_end[at])
    out = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=3)
    out = out.reshape(rows, value_heads, -1, value_dim)[:, :, :length].swapaxes(1, 2)
    return out, state.reshape(rows, value_heads, key_dim, value_dim)


def _running_sum(decay: mx.array) -> tuple[mx.array, mx.array]:
    """G as two terms, of which the first is exact and the second small; differences keep digits."""
    decay = mx.maximum(decay, _FORGOTTEN)
    coarse = mx.round(decay / _COARSE) * _COARSE
    return mx.cumsum(coarse, axis=-1), mx.cumsum(decay - coarse, axis=-1)


def _exp(x: mx.array) -> mx.array:
    """On a CPU a power of two costs less than half of an exponential."""
    return mx.power(2.0, x * _LOG2_E) if on_cpu() else mx.exp(x)


def _cut(x: mx.array, size: int, key_heads: int, group: int) -> mx.array:
    """`[B, T, heads, dim]` to `[B, key_heads, group, chunks, size, dim]`.

    Zeros fill the last chunk: a token of zeros (g and beta too) leaves the memory as it is.
    """
    rows, length, _, dim = x.shape
    missing = -length % size
    if missing:
        x = mx.pad(x, [(0, 0), (0, missing), (0, 0), (0, 0)])
    return x.swapaxes(1, 2).reshape(rows, key_heads, group, -1, size, dim)


def _unit_lower_inverse(below: mx.array) -> mx.array:
    """The inverse of `I + below`, where `below` `[..., n, n]` is zero on and above the diagonal.

    Blocks on the diagonal are inverted, then pairs of them are joined, until one is left::

        [P 0; Q R]^-1 = [P^-1 0; -R^-1 Q P^-1 R^-1]

    The shorter way, a product of powers of `below`, loses all digits where keys repeat. MLX has a
    triangular inverse too, on a CPU only, and no faster.
    """
    size = below.shape[-1]
    lead = below.shape[:-2]
    inverse = mx.ones((*lead, size, 1, 1))
    width = 1
    while width < size:
        pairs = size // (2 * width)
        blocks = below.reshape(*lead, pairs, 2, width, pairs, 2, width)
        # The corner Q of each pair on the diagonal.
        corners = mx.diagonal(blocks[..., :, 1, :, :, 0, :], axis1=-4, axis2=-2)
        corners = mx.moveaxis(corners, -1, -3)  # (..., pairs, width, width)
        both = inverse.reshape(*lead, pairs, 2, width, width)
        upper, lower = both[..., 0, :, :], both[..., 1, :, :]
        joined = -(lower @ (corners @ upper))
        inverse = mx.concatenate(
            [
                mx.concatenate([upper, mx.zeros_like(upper)], axis=-1),
                mx.concatenate([joined, lower], axis=-1),
            ],
            axis=-2,
        )
        width *= 2
    return inverse[..., 0, :, :]
