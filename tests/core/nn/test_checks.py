"""Blocks refuse numbers that do not fit together, and say which."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from phyla.family import RopeConfig
from phyla.nn import (
    AttentionShape,
    CausalConv1d,
    DeltaNetShape,
    LatentShape,
    Mamba2Shape,
    Rope,
    ShortConv,
    SigmoidRouter,
    VisionAttention,
)
from phyla.nn.mamba2 import GatedGroupRMSNorm

if TYPE_CHECKING:
    from collections.abc import Callable

ATTENTION = AttentionShape(heads=4, kv_heads=2, head_dim=8)
MAMBA = Mamba2Shape(heads=4, head_dim=8, groups=2, state=6, kernel=4, norm_eps=1e-5)
DELTA = DeltaNetShape(key_heads=2, value_heads=4, key_dim=8, value_dim=8, kernel=4, norm_eps=1e-6)
LATENT = LatentShape(
    heads=4, latent=16, query_rank=None, plain_dim=8, rotary_dim=4, value_dim=8,
    norm_eps=1e-6, bias=False, scale=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "change", "words"),
    [
        (ATTENTION, {"kv_heads": 3}, "heads should be a multiple of kv_heads; found 4 and 3"),
        (ATTENTION, {"head_dim": 0}, "head_dim should be an integer of at least 1; found 0"),
        (ATTENTION, {"heads": 4.0}, "heads should be an integer of at least 1; found 4.0"),
        (ATTENTION, {"window": 0}, "window should be an integer of at least 1; found 0"),
        (MAMBA, {"groups": 3}, "heads should be a multiple of groups; found 4 and 3"),
        (MAMBA, {"kernel": 0}, "kernel should be an integer of at least 1; found 0"),
        (MAMBA, {"state_dtype": "int8"}, "state_dtype should be one of 'float32', 'bfloat16', "),
        (MAMBA, {"step_limits": (1.0, 0.5)}, "step_limits should be two numbers"),
        (MAMBA, {"step_limits": (math.nan, 0.5)}, "step_limits should be two numbers"),
        (DELTA, {"key_heads": 3}, "value_heads should be a multiple of key_heads; found 4 and 3"),
        (DELTA, {"kernel": 0}, "kernel should be an integer of at least 1; found 0"),
        (LATENT, {"rotary_dim": 3}, "rotary_dim should be an even number; found 3"),
        (LATENT, {"query_rank": 0}, "query_rank should be an integer of at least 1; found 0"),
    ],
)
def test_a_shape_names_what_does_not_fit(shape: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"{type(shape).__name__}: {re.escape(words)}"):
        replace(shape, **change)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: CausalConv1d(8, 0), "CausalConv1d: kernel should be"),
        (lambda: ShortConv(8, 0), "kernel should be an integer of at least 1; found 0"),
        (lambda: GatedGroupRMSNorm(8, 3, 1e-5), "dim should be a multiple of groups"),
        (lambda: VisionAttention(8, 3), "dims should be a multiple of heads; found 8 and 3"),
        (lambda: Rope(RopeConfig(theta=1e4), 7), "even number of dimensions; found 7"),
        (lambda: SigmoidRouter(8, 6, per_token=2, groups=4), "a multiple of groups"),
        (lambda: SigmoidRouter(8, 6, per_token=7), "the 6 experts that are eligible; found 7"),
        (lambda: SigmoidRouter(8, 6, per_token=1, groups=2, kept_groups=3), "found 3 and 2"),
        (lambda: SigmoidRouter(8, 6, per_token=1, groups=6, kept_groups=2), "two or more"),
    ],
)
def test_a_block_names_what_does_not_fit(build: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        build()


def test_a_convolution_of_one_token_remembers_nothing() -> None:
    assert CausalConv1d(8, 1).state_shape == (0, 8)
