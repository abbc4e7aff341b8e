"""Attention over latents equals attention over the keys and values that come of them."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest

from phyla.engine.caches import FullCache
from phyla.family import DecoderConfig, RopeConfig, Step
from phyla.nn import CausalDecoder, LatentAttention, LatentShape, Rope, Rotation, fuse

DIM, LENGTH = 64, 6


def block(*, query_rank: int | None = 32, bits: int | None = None) -> LatentAttention:
    shape = LatentShape(
        heads=4, latent=64, query_rank=query_rank, plain_dim=24, rotary_dim=8, value_dim=16,
        norm_eps=1e-6, bias=True, scale=32**-0.5,
    )  # fmt: skip
    made = LatentAttention(DIM, shape)
    if bits is not None:
        nn.quantize(made, 32, bits, class_predicate=lambda _, m: hasattr(m, "to_quantized"))
    return made


def rotation() -> Rotation:
    step = Step(ids=mx.zeros((1, LENGTH)), positions=mx.arange(LENGTH)[None], extents=(LENGTH,))
    return Rope(RopeConfig(theta=100.0), 8)(step)


def hidden() -> mx.array:
    return mx.random.normal((1, LENGTH, DIM), key=mx.random.key(0))


def expanded(made: LatentAttention, x: mx.array) -> mx.array:
    """What the paper writes down: keys and values of every head, then attention."""
    shape, turn = made.shape, rotation()

    def by_head(x: mx.array) -> mx.array:
        return x.reshape(1, LENGTH, shape.heads, -1).swapaxes(1, 2)

    latent, rotary_key = mx.split(made.kv_a_proj_with_mqa(x), [shape.latent], axis=-1)
    queries = made.q_b_proj(made.q_a_layernorm(made.q_a_proj(x)))
    plain, rotary = mx.split(by_head(queries), [shape.plain_dim], axis=-1)
    keys, values = mx.split(
        by_head(made.kv_b_proj(made.kv_a_layernorm(latent))), [shape.plain_dim], axis=-1
    )
    rotary_key = mx.broadcast_to(turn(rotary_key[:, None]), (1, shape.heads, LENGTH, 8))
    out = mx.fast.scaled_dot_product_attention(
        mx.concatenate([plain, turn(rotary)], axis=-1),
        mx.concatenate([keys, rotary_key], axis=-1),
        values,
        scale=shape.scale,
        mask="causal",
    )
    return made.o_proj(out.swapaxes(1, 2).reshape(1, LENGTH, -1))


@pytest.mark.parametrize("bits", [None, 4, 8])
def test_it_equals_attention_over_expanded_keys_and_values(bits: int | None) -> None:
    made, x = block(bits=bits), hidden()
    expected = expanded(made, x)
    assert mx.allclose(made(x, rotation(), FullCache(made.shape.cache_kind)), expected, atol=1e-4)
    fuse(made)
    assert "kv_b_proj" not in made
    assert mx.allclose(made(x, rotation(), FullCache(made.shape.cache_kind)), expected, atol=1e-4)


@pytest.mark.parametrize("query_rank", [None, 32])
def test_cutting_the_maps_changes_nothing(query_rank: int | None) -> None:
    made, x = block(query_rank=query_rank), hidden()
    before = made(x, rotation(), FullCache(made.shape.cache_kind))
    for _ in range(2):
        fuse(made)
        after = made(x, rotation(), FullCache(made.shape.cache_kind))
        assert mx.allclose(after, before, atol=1e-5)


def test_a_rotation_that_was_made_for_another_width_is_refused() -> None:
    made, x = block(), hidden()
    step = Step(ids=mx.zeros((1, LENGTH)), positions=mx.arange(LENGTH)[None], extents=(LENGTH,))
    wrong = Rope(RopeConfig(theta=100.0), 16)(step)
    with pytest.raises(ValueError, match=r"rotary_dim \(8\) dimensions; found one of 16"):
        made(x, wrong, FullCache(made.shape.cache_kind))


def test_a_decoder_rotates_what_its_layers_rotate() -> None:
    config = DecoderConfig.read(
        {
            "vocab_size": 8, "hidden_size": DIM, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "rope_theta": 100.0,
        }
    )  # fmt: skip
    assert CausalDecoder.from_config(config, []).rope.dims == DIM // 2
    assert CausalDecoder.from_config(config, [], rotary_dim=8).rope.dims == 8


def test_a_token_costs_its_latent_and_not_its_keys_and_values() -> None:
    kind = block().shape.cache_kind
    assert (kind.heads, kind.key_dim, kind.value_dim) == (1, 8 + 64, 64)
