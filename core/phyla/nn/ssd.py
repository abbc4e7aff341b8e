"""The recurrence of Mamba-2, structured state space duality (Dao & Gu 2024, arXiv:2405.21060).

For each head, with state `h` `[P, N]`, input `x` `[P]`, and `b`, `c` `[N]` of the head's group::

    h <- exp(dt * a) * h + dt * x b^T
    y  = h c

A chunk of a prompt is read in one go: within it, tokens act on one another through a matrix like
attention's, `(c_i . b_j) * exp(sum of dt * a from j + 1 to i)`; what came before acts through the
state. Everything is in float32.

Tokens that forget make the running sum of dt * a so large that small ones beside it would drown in
it. So it is split: into multiples of a power of two, whose sums are exact, and what is left, whose
sum is so small that its exponential may be taken apart into a factor for i and one for j.
"""

from __future__ import annotations

import math

import mlx.core as mx

from phyla.backend import on_cpu

_LOG2_E = math.log2(math.e)

# Tokens in a chunk. The result does not depend on it but for rounding; the work within a chunk
# grows with its square, the number of operations falls with it.
_CHUNK_ON_CPU = 64
_CHUNK_ON_GPU = 256

# What decays to less than 2 ** _FLOOR counts as that much: no sum in float32 can tell, and the
# numbers from 2 ** -127 down, which have fewer digits, cost a CPU a hundred times the time.
_FLOOR = -100.0
# Multiples of it, up to the sum of a chunk's exponents, are exact: 256 * 100 * 2**9 < 2**24.
_COARSE = 2.0**-9


def ssd(
    x: mx.array, dt: mx.array, a: mx.array, b: mx.array, c: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Run the recurrence over T tokens.

    Args:
        x: the inputs, `[B, T, H, P]`.
        dt: the step sizes, `[B, T, H]`, positive.
        a: the heads' rates, `[H]`, negative.
        b: how inputs enter the state, `[B, T, G, N]`; head i is of group `i // (H // G)`.
        c: how the state is read, `[B, T, G, N]`.
        state: the state before, `[B, H, P, N]`.

    Returns:
        The outputs `[B, T, H, P]` and the state after, both float32.
    """
    x, dt, a, b, c, state = (each.astype(mx.float32) for each in (x, dt, a, b, c, state))
    rows, length, heads, width = x.shape
    groups = b.shape[2]
    grouped = (rows, length, groups, heads // groups)
    values, sizes = x.reshape(*grouped, width), dt.reshape(grouped)
    # Of two; bounded, so that their sums are.
    exponents = mx.maximum(dt * (a * _LOG2_E), _FLOOR).reshape(grouped)
    held = state.reshape(rows, groups, heads // groups, width, -1)
    if length == 1:
        inputs = values[:, 0] * sizes[:, 0][..., None]
        out, held = _step(inputs, exponents[:, 0], b[:, 0], c[:, 0], held)
        return out.reshape(x.shape), held.reshape(state.shape)
    size = min(length, _CHUNK_ON_CPU if on_cpu() else _CHUNK_ON_GPU)
    hidden = mx.where(mx.tri(size, dtype=mx.float32) > 0, 0.0, -math.inf)
    # A matrix product copies what does not lie in order slowly, so it is put in order before.
    values = mx.contiguous(values.transpose(0, 2, 3, 1, 4))  # (B, G, H/G, T, P)
    sizes, exponents = (each.transpose(0, 2, 3, 1) for each in (sizes, exponents))  # (B, G, H/G, T)
    b, c = (mx.contiguous(each.swapaxes(1, 2)) for each in (b, c))  # (B, G, T, N)
    outs: list[mx.array] = []
    for start in range(0, length, size):
        stop = min(start + size, length)
        out, held = _chunk(
            values[..., start:stop, :],
            sizes[..., start:stop],
            exponents[..., start:stop],
            b[:, :, start:stop],
            c[:, :, start:stop],
            held,
            hidden[: stop - start, : stop - start],
        )
        outs.append(out)
    joined = outs[0] if len(outs) == 1 else mx.concatenate(outs, axis=3)
    return joined.transpose(0, 3, 1, 2, 4).reshape(x.shape), held.reshape(state.shape)


def _chunk(
    values: mx.array,
    sizes: mx.array,
    exponents: mx.array,
    b: mx.array,
    c: mx.array,
    state: mx.array,
    hidden: mx.array,
) -> tuple[mx.array, mx.array]:
    """Outputs `[B, G, H/G, L, P]` and state `[B, G, H/G, P, N]` after L tokens at once."""
    coarse = mx.round(exponents / _COARSE) * _COARSE
    since, rest = mx.cumsum(coarse, axis=-1), mx.power(2.0, mx.cumsum(exponents - coarse, axis=-1))
    inputs = values * (sizes / rest)[..., None]
    between = mx.maximum(since[..., :, None] - since[..., None, :], _FLOOR) + hidden
    within = mx.power(2.0, between) * (c @ b.swapaxes(-1, -2))[:, :, None]
    kept, whole = _decay(since), since[..., -1:]
    before = (c[:, :, None] @ state.swapaxes(-1, -2)) * kept[..., None]
    lasting = _decay(whole - since) * rest[..., -1:]
    arriving = (inputs * lasting[..., None]).swapaxes(-1, -2) @ b[:, :, None]
    out = (within @ inputs + before) * rest[..., None]
    return out, state * (kept * rest)[..., -1:, None] + arriving


def _step(
    inputs: mx.array, exponents: mx.array, b: mx.array, c: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Outputs `[B, G, H/G, P]` and state after one token."""
    update = _update if on_cpu() else _fused_update
    state = update(state, _decay(exponents)[..., None, None], inputs, b)
    rows, groups, per_group, width, _ = state.shape
    # One product for all heads of a group.
    out = state.reshape(rows, groups, per_group * width, -1) @ c[..., None]
    return out.reshape(rows, groups, per_group, width), state


def _update(state: mx.array, decay: mx.array, inputs: mx.array, b: mx.array) -> mx.array:
    rows, groups = b.shape[:2]
    flat = (state * decay).reshape(rows, groups, -1, state.shape[-1])
    after = mx.addmm(flat, inputs.reshape(rows, groups, -1, 1), b[:, :, None])
    return after.reshape(state.shape)


@mx.compile
def _fused_update(state: mx.array, decay: mx.array, inputs: mx.array, b: mx.array) -> mx.array:
    return state * decay + inputs[..., None] * b[:, :, None, None]


def _decay(exponent: mx.array) -> mx.array:
    return mx.power(2.0, mx.maximum(exponent, _FLOOR))
