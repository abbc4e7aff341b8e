from __future__ import annotations

import mlx.core as mx
import pytest

from phyla.errors import ConfigError
from phyla.family import Step
from phyla.registry import discover, make_registry
from phyla_toy import plugin
from phyla_toy.config import Config
from phyla_toy.model import Toy

RAW = {"vocab_size": 11, "hidden_size": 8, "num_heads": 2, "head_dim": 3, "mlp_size": 12}


class GrowingCache:
    """Keys and values of every token, attended over with an explicit mask."""

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def attend(self, queries, keys, values, *, scale, sinks=None):
        if self.keys is not None:
            keys = mx.concatenate([self.keys, keys], axis=2)
            values = mx.concatenate([self.values, values], axis=2)
        self.keys, self.values = keys, values
        total, count = keys.shape[2], queries.shape[2]
        seen = mx.arange(total) <= mx.arange(total - count, total)[:, None]
        scores = mx.where(seen, queries @ keys.swapaxes(2, 3) * scale, -mx.inf)
        return mx.softmax(scores, axis=-1) @ values


@pytest.fixture
def model() -> Toy:
    mx.random.seed(0)
    return Toy(Config.read(RAW))


def run(model: Toy, ids: list[int], caches: list, start: int = 0) -> mx.array:
    step = Step(
        ids=mx.array([ids]),
        positions=mx.arange(start, start + len(ids))[None],
        extents=(32,),
    )
    return model.logits(model(model.embed(step), step, caches))[0]


def test_the_installed_package_is_found_with_its_version():
    (known,) = [known for known in discover().families if known.distribution == "phyla-toy"]
    assert (known.family.name, known.version) == ("toy", "0.1.0")


def test_the_plugin_keeps_its_contract():
    registry = make_registry(modules=[plugin])
    assert registry.broken == ()
    assert [known.family for known in registry.families] == [plugin.TOY]


def test_step_by_step_equals_one_shot(model):
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    whole = run(model, ids, [GrowingCache(), None])
    caches = [GrowingCache(), None]
    steps = [run(model, [token], caches, start) for start, token in enumerate(ids)]
    assert mx.allclose(whole, mx.concatenate(steps), atol=1e-5)


def test_a_later_token_changes_no_earlier_logits(model):
    one = run(model, [3, 1, 4], [GrowingCache(), None])
    other = run(model, [3, 1, 5], [GrowingCache(), None])
    assert mx.allclose(one[:2], other[:2], atol=1e-6)
    assert not mx.allclose(one[2], other[2], atol=1e-3)


def test_each_spelling_of_a_key_is_read():
    raw = {**RAW, "n_head": 2}
    del raw["num_heads"]
    assert Config.read(raw).num_heads == 2


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError) as failure:
        Config.read({**RAW, "head_dim": 0})
    assert failure.value.key == "head_dim"
