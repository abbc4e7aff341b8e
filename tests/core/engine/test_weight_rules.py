from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.checkpoint import TensorInfo
from phyla.engine.weight_rules import Stacked, Stored, place, renamed
from phyla.errors import CheckpointError
from phyla.family import Drop, Rename, Split, Stack, Transpose


def tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(name, shape, "F32", 0, "file") for name, shape in shapes.items()}


EXPERTS = Stack(r"mlp\.experts\.(?P<index>\d+)\.(\w+)\.weight", r"mlp.switch.\2.weight")


def test_rules_apply_in_order_each_to_every_name():
    placed = place(
        tensors({"model.a.weight": (2, 3), "model.b.weight": (4, 3), "extra": (1,)}),
        [Rename(r"model\.(.*)", r"\1"), Drop("extra"), Rename(r"(\w)\.weight", r"\1.kernel")],
    )
    assert {name: (tensor.source, tensor.shape) for name, tensor in placed.items()} == {
        "a.kernel": ("model.a.weight", (2, 3)),
        "b.kernel": ("model.b.weight", (4, 3)),
    }


def test_a_pattern_matches_the_whole_name_only():
    assert list(place(tensors({"lm_head.weight": (1,)}), [Drop("lm_head")])) == ["lm_head.weight"]


def test_transpose_and_split_say_the_new_shapes():
    placed = place(
        tensors({"conv": (6, 1, 4), "gate_up": (2, 8, 3)}),
        [Transpose("conv", (0, 2, 1)), Split("gate_up", ("gate", "up"), axis=1)],
    )
    assert {name: tensor.shape for name, tensor in placed.items()} == {
        "conv": (6, 4, 1),
        "gate": (2, 4, 3),
        "up": (2, 4, 3),
    }


@given(
    experts=st.integers(1, 12),
    names=st.sets(st.sampled_from(["gate", "up", "down"]), min_size=1),
    order=st.randoms(),
)
def test_stacking_uses_each_tensor_exactly_once_in_order(experts, names, order):
    keys = [f"mlp.experts.{i}.{name}.weight" for i in range(experts) for name in names]
    order.shuffle(keys)
    placed = place(tensors(dict.fromkeys(keys, (5, 7))), [EXPERTS])
    assert set(placed) == {f"mlp.switch.{name}.weight" for name in names}
    used = []
    for name in names:
        tensor = placed[f"mlp.switch.{name}.weight"]
        assert tensor.shape == (experts, 5, 7)
        parts = [f"mlp.experts.{i}.{name}.weight" for i in range(experts)]
        assert tensor.origin == Stacked(tuple(Stored(part) for part in parts))
        used += parts
    assert sorted(used) == sorted(keys)


def test_a_gap_in_a_stack_names_the_missing_number():
    held = tensors({f"mlp.experts.{i}.up.weight": (2, 2) for i in (0, 1, 3)})
    with pytest.raises(CheckpointError, match="number 2 is missing"):
        place(held, [EXPERTS])


def test_stacked_tensors_of_different_shapes_are_refused():
    held = tensors({"mlp.experts.0.up.weight": (2, 2), "mlp.experts.1.up.weight": (2, 3)})
    with pytest.raises(CheckpointError, match=r"experts\.1\.up.*differ"):
        place(held, [EXPERTS])


def test_two_tensors_on_one_name_are_an_error_that_names_both():
    with pytest.raises(CheckpointError, match=r"'a' and 'model\.a' both become 'a'"):
        place(tensors({"a": (1,), "model.a": (1,)}), [Rename(r"model\.(.*)", r"\1")])


def test_an_uneven_split_is_refused():
    with pytest.raises(CheckpointError, match="2 equal parts along axis 0"):
        place(tensors({"qkv": (3, 4)}), [Split("qkv", ("q", "k"))])


def test_a_permutation_of_the_wrong_rank_is_refused():
    with pytest.raises(CheckpointError, match="cannot be permuted"):
        place(tensors({"a": (3, 4)}), [Transpose("a", (0, 2, 1))])


def test_the_packed_axis_of_a_quantized_tensor_stays_last():
    with pytest.raises(CheckpointError, match="quantized along its last axis"):
        place(tensors({"a.weight": (4, 4), "a.scales": (4, 1)}), [Transpose(r"a\.weight", (1, 0))])


def test_a_name_is_renamed_without_being_in_the_file():
    rules = [
        Rename(r"model\.language_model\.(.*)", r"\1"),
        Split(r"(.*)\.qkv\.weight", (r"\1.q.weight", r"\1.k.weight")),
        Drop(r"mtp\..*"),
        EXPERTS,
    ]
    assert renamed("model.language_model.0.qkv.weight", rules) == ("0.q.weight", "0.k.weight")
    assert renamed("mtp.0.weight", rules) == ()
    assert renamed("mlp.experts.3.up.weight", rules) == ("mlp.switch.up.weight",)
