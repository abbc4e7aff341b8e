from __future__ import annotations

import pytest

from phyla.checkpoint import QuantizationScheme, open_checkpoint
from phyla.checkpoint.quantization import read_quantization
from phyla.errors import CheckpointError


def test_an_unquantized_config_has_no_scheme() -> None:
    for config in ({}, {"quantization": None}, {"quantization_config": {}}):
        assert read_quantization(config).scheme is None


@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_affine_is_read_at_every_width_and_group_size(key: str, bits: int) -> None:
    for group_size in (16, 32, 64, 128):
        found = read_quantization({key: {"bits": bits, "group_size": group_size}})
        assert found.scheme == QuantizationScheme(bits=bits, group_size=group_size, mode="affine")


@pytest.mark.parametrize(
    ("mode", "bits", "group_size"), [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
)
def test_microscaled_modes_are_read(mode, bits: int, group_size: int) -> None:
    entry = {"mode": mode, "bits": bits, "group_size": group_size}
    expected = QuantizationScheme(bits=bits, group_size=group_size, mode=mode)
    assert read_quantization({"quantization": entry}).scheme == expected


def test_layers_override_the_model_and_do_not_inherit_its_mode() -> None:
    entry = {
        "mode": "mxfp4",
        "bits": 4,
        "group_size": 32,
        "model.embed_tokens": {"bits": 8, "group_size": 64},
        "model.layers.0.mlp.gate": {"bits": 8, "group_size": 32, "mode": "mxfp8"},
        "lm_head": False,
        "model.layers.1.mlp.gate": True,
    }
    assert read_quantization({"quantization": entry}).overrides == {
        "model.embed_tokens": QuantizationScheme(bits=8, group_size=64, mode="affine"),
        "model.layers.0.mlp.gate": QuantizationScheme(bits=8, group_size=32, mode="mxfp8"),
        "lm_head": None,
    }


def test_mlx_s_own_entry_wins_over_what_the_original_was_quantized_with() -> None:
    config = {
        "quantization": {"bits": 4, "group_size": 64},
        "quantization_config": {"quant_method": "fp8"},
    }
    assert read_quantization(config).scheme == QuantizationScheme(bits=4, group_size=64)


@pytest.mark.parametrize(
    "method", ["fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "mxfp4", "modelopt"]
)
@pytest.mark.parametrize("nested", [False, True])
def test_another_method_is_refused_by_its_name(method: str, nested: bool) -> None:
    config = {"quantization_config": {"quant_method": method, "bits": 4, "group_size": 128}}
    with pytest.raises(CheckpointError) as caught:
        read_quantization({"text_config": config} if nested else config)
    assert caught.value.found == method
    assert method in str(caught.value)
    assert "MLX conversion" in str(caught.value.hint)


@pytest.mark.parametrize("nested", [False, True])
def test_fp8_is_refused_with_what_to_use_instead(nested: bool) -> None:
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    config = {"quantization_config": fp8}
    with pytest.raises(CheckpointError) as caught:
        read_quantization({"text_config": config} if nested else config)
    assert "FP8" in str(caught.value)
    assert "without `-FP8`" in str(caught.value.hint)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "U8", "BF16"])
@pytest.mark.parametrize("scale_first", [False, True])
def test_fp8_weights_are_told_by_their_scales_when_the_config_is_silent(
    write_folder, dtype: str, scale_first: bool
) -> None:
    tensors = {"w.weight": (dtype, [4]), "w.weight_scale_inv": ("F32", [1])}
    layout = dict(reversed(tensors.items())) if scale_first else tensors
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(write_folder({"model.safetensors": layout}))
    assert "FP8" in str(caught.value)
    assert "without `-FP8`" in str(caught.value.hint)
    assert caught.value.file is not None


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"bits": 7, "group_size": 64}, "quantization.bits"),
        ({"bits": True, "group_size": 64}, "quantization.bits"),
        ({"bits": 4, "group_size": 0}, "quantization.group_size"),
        ({"bits": 4, "group_size": "64"}, "quantization.group_size"),
        ({"bits": 4, "group_size": 64, "mode": "nf4"}, "quantization.mode"),
        ({"bits": 4, "group_size": 64, "mode": ["affine"]}, "quantization.mode"),
        ({"bits": 4, "group_size": 64, "mode": "mxfp4"}, "quantization"),
        ({"bits": 4, "group_size": 64, "lm_head": {"bits": 9}}, "quantization.lm_head.bits"),
        ({"level": "Q4"}, "quantization"),
        ("4bit", "quantization"),
    ],
)
def test_a_value_that_mlx_lacks_is_refused_by_its_key(entry: object, field: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_quantization({"quantization": entry})
    assert caught.value.field == field


def test_a_method_kept_in_a_file_of_its_own_is_refused(write_folder) -> None:
    folder = write_folder()
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NVFP4"}}')
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert caught.value.found == "modelopt"


def test_the_checkpoint_carries_scheme_and_overrides(write_folder) -> None:
    entry = {"bits": 4, "group_size": 64, "lm_head": False}
    checkpoint = open_checkpoint(write_folder(config={"quantization": entry}))
    assert checkpoint.quantization == QuantizationScheme(bits=4, group_size=64)
    assert checkpoint.overrides == {"lm_head": None}


@pytest.mark.parametrize(
    "entry",
    [
        {"quant_method": "modelopt", "quant_algo": "FP8"},
        {"quant_method": "compressed-tensors", "format": "float-quantized"},
        {"quant_method": "fbgemm_fp8"},
    ],
)
def test_fp8_is_named_whoever_wrote_it(entry):
    with pytest.raises(CheckpointError, match="FP8"):
        read_quantization({"quantization_config": entry})
