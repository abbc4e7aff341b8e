from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from phyla.checkpoint import Checkpoint, QuantizationScheme, TensorInfo, TokenizerData
from phyla.engine.precision import Precision
from phyla.engine.weight_plan import plan_weights
from phyla.engine.weights import load_weights
from phyla.errors import CheckpointError
from phyla.family import Drop, Rename, Split, Stack, Transpose
from phyla.nn import ExpertLinear

STORED = Precision(mx.float32, "stored", "")
FLOAT32 = Precision(mx.float32, "float32", "")
LABELS = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
    mx.uint8: "U8",
    mx.int32: "I32",
}
SCHEMES = [
    *(QuantizationScheme(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)),
    QuantizationScheme(4, 32, "mxfp4"),
    QuantizationScheme(8, 32, "mxfp8"),
    QuantizationScheme(4, 16, "nvfp4"),
]


def name_of(scheme: QuantizationScheme) -> str:
    return f"{scheme.mode}-{scheme.bits}-{scheme.group_size}"


def checkpoint_of(
    arrays: dict[str, mx.array],
    *,
    quantization: QuantizationScheme | None = None,
    overrides: dict[str, QuantizationScheme | None] | None = None,
    opened: list[bool] | None = None,
) -> Checkpoint:
    def load() -> dict[str, mx.array]:
        if opened is not None:
            opened.append(True)
        return dict(arrays)

    return Checkpoint(
        path=Path("tiny"),
        name="tiny",
        format="safetensors",
        config={},
        generation_config={},
        tensors={
            name: TensorInfo(name, array.shape, LABELS[array.dtype], array.nbytes, "file")
            for name, array in arrays.items()
        },
        tokenizer=lambda: TokenizerData(json=""),
        chat_templates={},
        quantization=quantization,
        overrides=overrides or {},
        load=load,
    )


def packed(name: str, weight: mx.array, scheme: QuantizationScheme) -> dict[str, mx.array]:
    parts = mx.quantize(weight, group_size=scheme.group_size, bits=scheme.bits, mode=scheme.mode)
    kinds = ("weight", "scales", "biases")
    return {f"{name}.{kind}": part for kind, part in zip(kinds, parts, strict=False)}


def unpacked(arrays: dict[str, mx.array], name: str, scheme: QuantizationScheme) -> mx.array:
    return mx.dequantize(
        arrays[f"{name}.weight"],
        arrays[f"{name}.scales"],
        arrays.get(f"{name}.biases"),
        group_size=scheme.group_size,
        bits=scheme.bits,
        mode=scheme.mode,
        dtype=mx.float32,
    )


def random(*shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(sum(shape))).astype(dtype)


class Tiny(nn.Module):
    """An embedding, a norm, a linear layer and two stacked experts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 128)
        self.norm = nn.RMSNorm(128)
        self.proj = nn.Linear(128, 16, bias=True)
        self.experts = ExpertLinear(2, 128, 16)


def floats(dtype: mx.Dtype = mx.float32) -> dict[str, mx.array]:
    return {
        "embed.weight": random(8, 128, dtype=dtype),
        "norm.weight": random(128, dtype=dtype),
        "proj.weight": random(16, 128, dtype=dtype),
        "proj.bias": random(16, dtype=dtype),
        "experts.weight": random(2, 16, 128, dtype=dtype),
    }


def quantized(scheme: QuantizationScheme) -> dict[str, mx.array]:
    arrays = floats()
    for name in ("embed", "proj", "experts"):
        arrays |= packed(name, arrays.pop(f"{name}.weight"), scheme)
    return arrays


def parameters(model: nn.Module) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


def test_every_parameter_is_filled_with_its_tensor():
    arrays, model = floats(), Tiny()
    load_weights(model, checkpoint_of(arrays), [], STORED)
    found = parameters(model)
    assert found.keys() == arrays.keys()
    assert all(mx.array_equal(found[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("scheme", SCHEMES, ids=name_of)
def test_a_quantized_layer_stays_packed_and_computes_what_it_stands_for(scheme):
    arrays, model = quantized(scheme), Tiny()
    load_weights(model, checkpoint_of(arrays, quantization=scheme), [], STORED)
    assert isinstance(model.proj, nn.QuantizedLinear)
    assert isinstance(model.embed, nn.QuantizedEmbedding)
    assert (model.proj.bits, model.proj.group_size, model.proj.mode) == (
        scheme.bits,
        scheme.group_size,
        scheme.mode,
    )
    x = random(3, 128)
    expected = x @ unpacked(arrays, "proj", scheme).T + arrays["proj.bias"]
    assert mx.allclose(model.proj(x), expected, rtol=1e-4, atol=1e-4)
    ids = mx.array([1, 5])
    rows = unpacked(arrays, "embed", scheme)[ids]
    assert mx.allclose(model.embed(ids).astype(mx.float32), rows, rtol=1e-2, atol=1e-2)
    chosen = mx.array([1, 0, 1])
    experts = unpacked(arrays, "experts", scheme)
    out = model.experts(x[:, None], chosen, in_order=False)
    expected = x[:, None] @ experts[chosen].swapaxes(-1, -2)
    assert mx.allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scheme", SCHEMES, ids=name_of)
def test_float32_weights_are_exactly_what_the_packed_ones_stand_for(scheme):
    arrays, model = quantized(scheme), Tiny()
    load_weights(model, checkpoint_of(arrays, quantization=scheme), [], FLOAT32)
    assert type(model.proj) is nn.Linear
    found = parameters(model)
    assert all(array.dtype == mx.float32 for array in found.values())
    for name in ("embed", "proj", "experts"):
        assert mx.array_equal(found[f"{name}.weight"], unpacked(arrays, name, scheme))


def test_layers_without_scales_are_left_alone():
    scheme = QuantizationScheme(4, 64)
    arrays, model = floats(), Tiny()
    arrays |= packed("proj", arrays.pop("proj.weight"), scheme)
    load_weights(model, checkpoint_of(arrays, quantization=scheme), [], STORED)
    assert isinstance(model.proj, nn.QuantizedLinear)
    assert type(model.embed) is nn.Embedding
    assert isinstance(model.experts, ExpertLinear)


def test_each_layer_may_have_a_scheme_of_its_own():
    four, eight, floating = (
        SCHEMES[7],
        QuantizationScheme(8, 32),
        QuantizationScheme(4, 32, "mxfp4"),
    )
    arrays, model = floats(), Tiny()
    arrays |= packed("embed", arrays.pop("embed.weight"), eight)
    arrays |= packed("proj", arrays.pop("proj.weight"), four)
    arrays |= packed("experts", arrays.pop("experts.weight"), floating)
    checkpoint = checkpoint_of(
        arrays, quantization=four, overrides={"embed": eight, "experts": floating}
    )
    load_weights(model, checkpoint, [], STORED)
    assert (model.embed.bits, model.proj.bits, model.experts.mode) == (8, 4, "mxfp4")


def test_shapes_are_believed_over_a_config_that_lies():
    arrays, model = quantized(QuantizationScheme(6, 64)), Tiny()
    load_weights(model, checkpoint_of(arrays, quantization=QuantizationScheme(4, 64)), [], STORED)
    assert (model.proj.bits, model.proj.group_size) == (6, 64)


def test_override_keys_go_through_the_renaming_of_their_weights():
    four, six = QuantizationScheme(4, 64), QuantizationScheme(3, 128)
    rules = [Rename(r"(?:model\.language_model|language_model\.model)\.(.*)", r"\1")]
    arrays = {f"language_model.model.{name}": array for name, array in quantized(six).items()}
    checkpoint = checkpoint_of(
        arrays,
        quantization=four,
        overrides={f"model.language_model.{name}": six for name in ("embed", "proj", "experts")},
    )
    plan = plan_weights(checkpoint, rules)
    assert set(plan.quantized) == {six}
    model = Tiny()
    load_weights(model, checkpoint, rules, STORED)
    assert (model.proj.bits, model.proj.group_size) == (3, 128)


def test_a_module_without_a_quantized_counterpart_gets_the_unpacked_weight():
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = mx.zeros((8, 128))

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = Table()

    scheme = QuantizationScheme(4, 64)
    arrays, model = packed("table", random(8, 128), scheme), Wrapper()
    load_weights(model, checkpoint_of(arrays, quantization=scheme), [], STORED)
    assert mx.array_equal(model.table.weight, unpacked(arrays, "table", scheme))


def test_rules_move_real_values_to_where_they_belong():
    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(4, 2, bias=False)
            self.k = nn.Linear(4, 2, bias=False)
            self.conv = nn.Conv1d(1, 6, 3, bias=False)
            self.experts = ExpertLinear(3, 4, 5)

    model = Fused()
    arrays = {"qkv": random(4, 4), "conv.weight": random(6, 1, 3), "unused": random(2)}
    arrays |= {f"e.{i}.weight": random(5, 4) + i for i in range(3)}
    rules = [
        Split("qkv", ("q.weight", "k.weight")),
        Transpose(r"conv\.weight", (0, 2, 1)),
        Stack(r"e\.(?P<index>\d+)\.weight", "experts.weight"),
        Drop("unused"),
    ]
    load_weights(model, checkpoint_of(arrays), rules, STORED)
    found = parameters(model)
    assert mx.array_equal(mx.concatenate([found["q.weight"], found["k.weight"]]), arrays["qkv"])
    assert mx.array_equal(found["conv.weight"], arrays["conv.weight"].swapaxes(1, 2))
    assert mx.array_equal(
        found["experts.weight"], mx.stack([arrays[f"e.{i}.weight"] for i in range(3)])
    )


def test_quantized_experts_are_stacked_part_by_part():
    scheme = QuantizationScheme(4, 64)
    arrays = packed("x.0", random(16, 128), scheme) | packed("x.1", random(16, 128) * 2, scheme)

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = ExpertLinear(2, 128, 16)

    model = Experts()
    rules = [Stack(r"x\.(?P<index>\d+)\.(weight|scales|biases)", r"experts.\2")]
    load_weights(model, checkpoint_of(arrays, quantization=scheme), rules, FLOAT32)
    expected = mx.stack([unpacked(arrays, f"x.{i}", scheme) for i in range(2)])
    assert mx.array_equal(model.experts.weight, expected)


def refused(arrays: dict[str, mx.array], match: str) -> CheckpointError:
    opened: list[bool] = []
    model = Tiny()
    before = parameters(model)
    with pytest.raises(CheckpointError, match=match) as caught:
        load_weights(model, checkpoint_of(arrays, opened=opened), [], STORED)
    assert not opened
    after = parameters(model)
    assert all(after[name] is before[name] for name in before)
    return caught.value


def test_unused_tensors_are_counted_and_the_first_are_named():
    extra = {f"extra.{i}": random(1) for i in range(7)}
    error = refused(floats() | extra, r"7 tensors \(extra\.0, .*extra\.4, \.\.\.\)")
    assert error.field == "extra.0"


def test_a_missing_tensor_is_named():
    arrays = floats()
    del arrays["norm.weight"]
    assert refused(arrays, r"nothing for 1 parameter \(norm\.weight\)").field == "norm.weight"


def test_a_wrong_shape_says_found_and_expected():
    error = refused(floats() | {"proj.weight": random(16, 64)}, r"\[16, 64\].*expects \[16, 128\]")
    assert (error.found, error.expected) == ((16, 64), (16, 128))


def test_packed_shapes_that_fit_no_scheme_are_refused():
    arrays = quantized(QuantizationScheme(4, 64))
    arrays["proj.weight"] = arrays["proj.weight"][:, :7]
    assert refused(arrays, "quantized layer 'proj'").field == "proj"


def test_a_layer_packed_for_another_width_is_refused():
    arrays = quantized(QuantizationScheme(4, 64))
    arrays |= packed("proj", random(16, 192), QuantizationScheme(4, 64))
    refused(arrays, "input width of 128")


def test_an_affine_layer_without_biases_is_refused():
    arrays = quantized(QuantizationScheme(4, 64))
    del arrays["proj.biases"]
    refused(arrays, "'proj' has no biases")


def test_integers_do_not_pass_for_weights():
    refused(floats() | {"norm.weight": mx.ones((128,), dtype=mx.int32)}, "type I32")


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_narrow_matrices_stay_as_stored_and_vectors_take_the_activations_type(dtype):
    model = Tiny()
    load_weights(model, checkpoint_of(floats(dtype)), [], STORED)
    found = {name: array.dtype for name, array in parameters(model).items()}
    assert found == {
        "embed.weight": dtype,
        "norm.weight": mx.float32,
        "proj.weight": dtype,
        "proj.bias": mx.float32,
        "experts.weight": dtype,
    }


def test_block_types_unpacked_on_reading_are_held_in_half_the_size():
    checkpoint = checkpoint_of(floats())
    tensors = {name: replace(info, dtype="Q4_K") for name, info in checkpoint.tensors.items()}
    model = Tiny()
    load_weights(model, replace(checkpoint, tensors=tensors), [], STORED)
    found = parameters(model)
    assert (found["proj.weight"].dtype, found["norm.weight"].dtype) == (mx.float16, mx.float32)


def test_float32_holds_everything_in_float32():
    model = Tiny()
    load_weights(model, checkpoint_of(floats(mx.bfloat16)), [], FLOAT32)
    assert {array.dtype for array in parameters(model).values()} == {mx.float32}


def test_scales_take_the_activations_type():
    scheme, model = QuantizationScheme(4, 64), Tiny()
    arrays = quantized(scheme)
    arrays["proj.scales"] = arrays["proj.scales"].astype(mx.bfloat16)
    arrays["proj.biases"] = arrays["proj.biases"].astype(mx.bfloat16)
    load_weights(model, checkpoint_of(arrays, quantization=scheme), [], STORED)
    found = parameters(model)
    assert found["proj.scales"].dtype == found["proj.biases"].dtype == mx.float32
