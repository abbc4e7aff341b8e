from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.checkpoint import QuantizationScheme
from phyla.checkpoint.gguf import read_gguf
from phyla.checkpoint.gguf_names import hugging_face_name
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 256, 4, 2, 64, 512, 16
BYTE = {"F32": 4, "F16": 2, "BF16": 2}


def values(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def interleave(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """What llama.cpp's converter does to query and key projections."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


class Written:
    """A GGUF file with one block; `tensors` are in Hugging Face's order of rows."""

    def __init__(
        self,
        path: Path,
        architecture: str = "llama",
        *,
        kind: str = "F32",
        keys: dict[str, Any] | None = None,
        extra: dict[str, NDArray[Any]] | None = None,
        leave_out: tuple[str, ...] = (),
        whole_keys: dict[str, Any] | None = None,
    ) -> None:
        import gguf

        self.path = path
        qtype = gguf.GGMLQuantizationType[kind]
        writer = gguf.GGUFWriter(path, architecture)
        settings = {
            "block_count": 1,
            "context_length": 512,
            "embedding_length": WIDTH,
            "feed_forward_length": FFN,
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 10000.0,
        } | (keys or {})
        named = {f"{architecture}.{key}": value for key, value in settings.items()}
        for key, value in (named | (whole_keys or {})).items():
            add: dict[type, Callable[[str, Any], None]] = {
                bool: writer.add_bool,
                int: writer.add_uint32,
                float: writer.add_float32,
                str: writer.add_string,
                list: writer.add_array,
            }
            if value is not None:
                add[type(value)](key, value)
        self.tensors: dict[str, NDArray[np.float32]] = {}
        for name, shape in {
            "token_embd.weight": (VOCAB, WIDTH),
            "output.weight": (VOCAB, WIDTH),
            "output_norm.weight": (WIDTH,),
            "blk.0.attn_norm.weight": (WIDTH,),
            "blk.0.attn_q.weight": (HEADS * HEAD_DIM, WIDTH),
            "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            "blk.0.attn_output.weight": (WIDTH, HEADS * HEAD_DIM),
            "blk.0.ffn_norm.weight": (WIDTH,),
            "blk.0.ffn_gate.weight": (FFN, WIDTH),
            "blk.0.ffn_up.weight": (FFN, WIDTH),
            "blk.0.ffn_down.weight": (WIDTH, FFN),
        }.items():
            if name in leave_out:
                continue
            tensor = values(*shape)
            if len(shape) == 1:
                writer.add_tensor(name, tensor)
                self.tensors[name] = tensor
                continue
            heads = {"blk.0.attn_q.weight": HEADS, "blk.0.attn_k.weight": KV_HEADS}.get(name)
            stored = tensor
            if heads is not None and architecture in ("llama", "minicpm"):
                stored = interleave(tensor, heads)
            raw = quantize(stored, kind)
            writer.add_tensor(name, raw, raw_dtype=qtype)
            plain = raw if kind in ("F32", "F16") else gguf.dequantize(raw, qtype)
            plain = np.asarray(plain, np.float32).reshape(shape)
            if stored is not tensor and heads is not None:
                plain = plain.reshape(heads, -1, 2, WIDTH).swapaxes(1, 2).reshape(shape)
            self.tensors[name] = plain
        for name, tensor in (extra or {}).items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def quantize(tensor: NDArray[np.float32], kind: str) -> NDArray[Any]:
    import gguf

    if kind == "F32":
        return tensor
    if kind == "F16":
        return tensor.astype(np.float16)
    if kind in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"):
        # The package cannot write these; any bits are a valid block once its scales are finite.
        block = {"Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}[kind]
        count = tensor.size // 256
        rng = np.random.default_rng(count)
        blocks = rng.integers(0, 256, (count, block), dtype=np.uint8)
        half = np.full((count, 1), 0.01, np.float16).view(np.uint8)
        scales = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
        for at in scales[kind]:
            blocks[:, at : at + 2] = half
        return blocks.reshape(tensor.shape[0], -1)
    return gguf.quantize(tensor, gguf.GGMLQuantizationType[kind])


def loaded(path: Path) -> dict[str, mx.array]:
    checkpoint = read_gguf(path)
    store = checkpoint.load()
    return {name: store.pop(name) for name in checkpoint.tensors}


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_simple_blocks_stay_quantized_without_loss(tmp_path, kind, architecture):
    file = Written(tmp_path / "m.gguf", architecture, kind=kind)
    checkpoint, arrays = read_gguf(file.path), loaded(file.path)
    bits = 8 if kind == "Q8_0" else 4
    assert checkpoint.quantization == QuantizationScheme(bits, 32)
    for name, expected in file.tensors.items():
        stem = hugging_face_name(name).removesuffix(".weight")
        if expected.ndim == 1:
            continue
        found = mx.dequantize(
            arrays[f"{stem}.weight"],
            arrays[f"{stem}.scales"].astype(mx.float32),
            arrays[f"{stem}.biases"].astype(mx.float32),
            group_size=32,
            bits=bits,
        )
        assert np.array_equal(np.array(found), expected), name


@pytest.mark.parametrize(
    "kind", ["F32", "F16", "BF16", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
)
def test_other_types_are_read_exactly(tmp_path, kind):
    file = Written(tmp_path / "m.gguf", kind=kind)
    arrays = loaded(file.path)
    stored = {"F16": mx.float16, "BF16": mx.bfloat16}.get(kind, mx.float32)
    assert arrays["model.embed_tokens.weight"].dtype == stored
    assert len(arrays) == len(file.tensors)
    for name, expected in file.tensors.items():
        found = np.array(arrays[hugging_face_name(name)].astype(mx.float32))
        assert np.array_equal(found, expected), name


@given(scale=st.floats(0.001953125, 65504, width=16), bits=st.binary(min_size=32, max_size=32))
def test_any_block_of_eight_bits_survives_even_where_float16_overflows(scale, bits):
    from phyla.checkpoint.gguf_tensors import _affine, _packed

    block = np.frombuffer(np.float16(scale).tobytes() + bits, np.uint8)[None]
    found = mx.dequantize(
        mx.array(_packed(block, "Q8_0")),
        mx.array(_affine(block, "Q8_0", "scales").astype(np.float32)),
        mx.array(_affine(block, "Q8_0", "biases").astype(np.float32)),
        group_size=32,
        bits=8,
    )
    assert np.array_equal(np.array(found)[0], np.frombuffer(bits, np.int8) * np.float32(scale))


def test_headers_describe_the_arrays_that_come_out(tmp_path):
    for kind in ("Q4_0", "F16"):
        file = Written(tmp_path / f"{kind}.gguf", kind=kind)
        arrays = loaded(file.path)
        labels = {mx.uint32: "U32", mx.float16: "F16", mx.float32: "F32"}
        for name, info in read_gguf(file.path).tensors.items():
            found = arrays[name]
            assert (found.shape, labels[found.dtype], found.nbytes) == (
                info.shape,
                info.dtype,
                info.nbytes,
            )


def test_reading_the_header_loads_no_mlx(tmp_path):
    import subprocess

    file = Written(tmp_path / "m.gguf")
    code = (
        "import sys, pathlib; from phyla.checkpoint.gguf import read_gguf;"
        f"read_gguf(pathlib.Path({str(file.path)!r}));"
        "assert not {'mlx', 'gguf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_llama_config_has_transformers_keys(tmp_path):
    config = read_gguf(Written(tmp_path / "m.gguf").path).config
    assert config == {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "float32",
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }


@pytest.mark.parametrize(
    ("kind", "dtype"), [("Q4_0", "float16"), ("BF16", "bfloat16"), ("Q6_K", "float16")]
)
def test_the_type_to_compute_in_follows_the_matrices(tmp_path, kind, dtype):
    assert read_gguf(Written(tmp_path / "m.gguf", kind=kind).path).config["dtype"] == dtype


def test_a_file_without_a_head_is_tied(tmp_path):
    file = Written(tmp_path / "m.gguf", leave_out=("output.weight",))
    assert read_gguf(file.path).config["tie_word_embeddings"] is True


def test_an_explicit_head_size_goes_before_the_quotient(tmp_path):
    file = Written(tmp_path / "m.gguf", "qwen3", keys={"attention.key_length": 32})
    assert read_gguf(file.path).config["head_dim"] == 32


def test_query_biases_are_put_in_order_too(tmp_path):
    bias = values(HEADS * HEAD_DIM)
    file = Written(tmp_path / "m.gguf", extra={"blk.0.attn_q.bias": interleave(bias, HEADS)})
    assert read_gguf(file.path).config["attention_bias"] is True
    assert np.array_equal(np.array(loaded(file.path)["model.layers.0.self_attn.q_proj.bias"]), bias)


def test_mixtral_is_not_taken_for_a_llama(tmp_path):
    file = Written(tmp_path / "m.gguf", keys={"expert_count": 8})
    assert read_gguf(file.path).model_type == "mixtral"


def test_an_unknown_architecture_keeps_its_name(tmp_path):
    checkpoint = read_gguf(Written(tmp_path / "m.gguf", "mamba").path)
    assert checkpoint.model_type == "mamba"


def test_minicpm_scalings_come_back_from_their_quotients(tmp_path):
    keys = {"embedding_scale": 10.0, "residual_scale": 1.4, "logit_scale": 4.0}
    config = read_gguf(Written(tmp_path / "m.gguf", "minicpm", keys=keys).path).config
    assert (config["scale_emb"], config["scale_depth"], config["dim_model_base"]) == (10.0, 1.4, 64)


def test_an_old_minicpm_file_has_the_scalings_of_its_time(tmp_path):
    config = read_gguf(Written(tmp_path / "m.gguf", "minicpm").path).config
    assert (config["scale_emb"], config["scale_depth"], config["dim_model_base"]) == (
        12.0,
        1.4,
        256,
    )


def test_experts_are_stacked_under_mlx_names(tmp_path):
    extra = {
        "blk.0.ffn_gate_inp.weight": values(4, WIDTH),
        "blk.0.ffn_gate_exps.weight": values(4, 32, WIDTH),
    }
    keys = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
    file = Written(tmp_path / "m.gguf", "qwen3moe", keys=keys, extra=extra)
    config, arrays = read_gguf(file.path).config, loaded(file.path)
    assert config["model_type"] == "qwen3_moe"
    assert (config["num_experts"], config["num_experts_per_tok"]) == (4, 2)
    assert (config["moe_intermediate_size"], config["norm_topk_prob"]) == (32, True)
    assert arrays["model.layers.0.mlp.gate.weight"].shape == (4, WIDTH)
    found = np.array(arrays["model.layers.0.mlp.switch_mlp.gate_proj.weight"])
    assert np.array_equal(found, extra["blk.0.ffn_gate_exps.weight"])


def test_rotary_factors_move_from_the_tensors_to_the_config(tmp_path):
    factors = np.linspace(1, 8, HEAD_DIM // 2, dtype=np.float32)
    file = Written(tmp_path / "m.gguf", extra={"rope_freqs.weight": factors})
    checkpoint = read_gguf(file.path)
    assert checkpoint.config["rope_scaling"] == {
        "rope_type": "factors",
        "factors": factors.tolist(),
    }
    assert not any("rope" in name for name in checkpoint.tensors)


def test_longrope_has_both_lists(tmp_path):
    extra = {
        "rope_factors_long.weight": np.full(HEAD_DIM // 2, 4, np.float32),
        "rope_factors_short.weight": np.ones(HEAD_DIM // 2, np.float32),
    }
    keys = {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 128}
    config = read_gguf(Written(tmp_path / "m.gguf", "minicpm", keys=keys, extra=extra).path).config
    assert config["rope_scaling"] == {
        "rope_type": "longrope",
        "long_factor": [4.0] * (HEAD_DIM // 2),
        "short_factor": [1.0] * (HEAD_DIM // 2),
        "original_max_position_embeddings": 128,
    }


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        ({"rope.scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 128,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
        ),
    ],
)
def test_rope_scaling_keys_become_rope_scaling(tmp_path, keys, expected):
    config = read_gguf(Written(tmp_path / "m.gguf", "qwen3", keys=keys).path).config
    assert config.get("rope_scaling") == expected


def test_ends_templates_and_sampling_come_from_the_metadata(tmp_path):
    file = Written(
        tmp_path / "m.gguf",
        whole_keys={
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.eot_token_id": 7,
            "tokenizer.chat_template": "usual",
            "tokenizer.chat_template.tool_use": "with tools",
            "general.sampling.temp": 0.6,
            "general.sampling.top_k": 20,
            "general.sampling.penalty_repeat": 1.1,
        },
    )
    checkpoint = read_gguf(file.path)
    assert checkpoint.generation_config == {
        "bos_token_id": 1,
        "eos_token_id": [2, 7],
        "temperature": 0.6,
        "top_k": 20,
        "repetition_penalty": 1.1,
    }
    assert checkpoint.config["eos_token_id"] == [2, 7]
    assert checkpoint.chat_templates == {"default": "usual", "tool_use": "with tools"}


def refused(path: Path, match: str) -> CheckpointError:
    with pytest.raises(CheckpointError, match=match) as caught:
        read_gguf(path)
    assert caught.value.file == path.name
    return caught.value


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"<html>not found</html>", "does not start with the letters GGUF"),
        (b"GGUF", "ends within its header"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "of version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian version 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "which architecture"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60), "ends within its header"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63), "ends within its header"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 99), "unknown type 99"),
    ],
)
def test_a_broken_file_says_what_it_is(tmp_path, content, match):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    refused(path, match)


def test_a_missing_file_is_a_checkpoint_error(tmp_path):
    refused(tmp_path / "m.gguf", "No such file")


def test_a_truncated_file_says_where_it_should_end(tmp_path):
    file = Written(tmp_path / "m.gguf")
    content = file.path.read_bytes()
    file.path.write_bytes(content[:-1000])
    error = refused(file.path, "is truncated: its tensor")
    assert error.found == f"{len(content) - 1000} bytes"
    assert error.hint == "Download the file again."


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file that is as it should be."""
    path = tmp_path_factory.mktemp("whole") / "m.gguf"
    return Written(path, whole_keys={"tokenizer.ggml.tokens": ["a", "bc"]}).path


@given(length=st.integers(1, 1000))
def test_a_file_cut_anywhere_in_its_header_is_refused(whole, length):
    path = whole.with_name("cut.gguf")
    path.write_bytes(whole.read_bytes()[:length])
    refused(path, "ends within|does not start|truncated")


def test_a_type_that_cannot_be_read_names_tensor_and_type(tmp_path):
    path = tmp_path / "m.gguf"
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    tensor = struct.pack("<Q4sIQIQ", 4, b"some", 1, 256, 20, 0)
    path.write_bytes(header + tensor + b"\0" * 1000)
    assert refused(path, "'some' in the type IQ4_NL").found == "IQ4_NL"


def test_one_piece_of_several_says_how_to_join_them(tmp_path):
    file = Written(tmp_path / "m.gguf", whole_keys={"split.count": 3})
    refused(file.path, "one of 3 pieces.*llama-gguf-split")


def test_a_missing_key_is_named(tmp_path):
    file = Written(tmp_path / "m.gguf", keys={"block_count": None})
    assert refused(file.path, "llama.block_count").field == "llama.block_count"
