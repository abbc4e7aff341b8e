"""What a report says of caches, and of models that are only described."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError
from phyla.family import Full, NoCache, Recurrent, Sliding
from phyla.inspect import Report, cache_report, inspect
from phyla.kv_quantization import read_kv_quantization
from phyla.registry import discover

CONFIGS = Path(__file__).parents[3] / "shared" / "configs"
KINDS = (
    Full(heads=2, key_dim=64, value_dim=128),
    Sliding(window=5, heads=1, key_dim=64, value_dim=64),
    Recurrent(shapes=((3, 4), (2, 5)), dtypes=(None, "float32")),
    NoCache(),
)


def test_what_a_token_and_a_sequence_cost_is_told_apart() -> None:
    report = cache_report(KINDS, mx.float16)
    assert report.bytes_per_token == 2 * (64 + 128) * 2
    assert report.fixed_bytes == 5 * (64 + 64) * 2 + 12 * 2 + 10 * 4
    assert report.quantized is None


def test_quantized_keys_and_values_change_windows_and_no_states() -> None:
    report = cache_report(KINDS, mx.float16, read_kv_quantization((8, 4)))
    assert report.bytes_per_token == 2 * ((64 + 4) + 2 * (32 + 4))
    assert report.fixed_bytes == 5 * ((64 + 4) + (32 + 4)) + 12 * 2 + 10 * 4


def described(folder: Path, config: str) -> Report:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config)
    checkpoint = open_checkpoint(folder, partial=True)
    family = discover().family_for(checkpoint)
    return inspect(checkpoint, family, distribution="phyla", dtype="stored")


@pytest.mark.parametrize(
    ("name", "billions", "bytes_per_token"),
    [
        # Keys and values of the layers that keep all, in the type that a CPU computes in.
        ("qwen3-0.6b", 0.6, 28 * 8 * 2 * 128),
        ("qwen3-235b-a22b-instruct-2507", 235, 94 * 4 * 2 * 128),
        ("qwen3-next-80b-a3b-instruct", 80, 12 * 2 * 2 * 256),
        ("nemotron-3-nano-30b-a3b-bf16", 31.6, 6 * 2 * 2 * 128),
        ("gemma4-26B-A4B", 26, 5 * 2 * 2 * 512),
    ],
)
def test_a_published_config_alone_tells_the_size_of_its_model(
    name: str, billions: float, bytes_per_token: int, tmp_path: Path
) -> None:
    path = CONFIGS / f"{name}.config.json"
    if not path.exists():
        pytest.skip("needs the published configs beside the repository")
    report = described(tmp_path / name, path.read_text(encoding="utf-8"))
    assert report.parameters == pytest.approx(billions * 1e9, rel=0.03)
    itemsize = 4 if report.precision.device == "cpu" else 2
    assert report.cache.bytes_per_token == bytes_per_token * itemsize
    assert report.missing == ("weights (*.safetensors)", "tokenizer.json")


def test_a_tower_that_a_config_describes_is_told(tmp_path: Path) -> None:
    path = CONFIGS / "qwen3-vl-8b-instruct.config.json"
    if not path.exists():
        pytest.skip("needs the published configs beside the repository")
    report = described(tmp_path / "vl", path.read_text(encoding="utf-8"))
    assert report.modalities == ("text", "image", "video")


def test_an_index_without_its_shards_is_a_folder_without_weights(tmp_path: Path) -> None:
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {
        "model_type": "llama", "vocab_size": 264, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 2, "tie_word_embeddings": True,
    }  # fmt: skip
    assert described(tmp_path, json.dumps(config)).missing[0] == "weights (*.safetensors)"


def test_a_description_still_checks_the_other_files(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "vocab_size": 264, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
        "tie_word_embeddings": True, "eos_token_id": 7,
    }  # fmt: skip
    report = described(tmp_path, json.dumps(config))
    assert report.parameters == 264 * 16 + 4 * 16 * 16 + 3 * 16 * 24 + 3 * 16
    assert [(token.id, token.text) for token in report.eos] == [(7, None)]
    assert report.template is None
    (tmp_path / "generation_config.json").write_text('{"temperature": "hot"}')
    with pytest.raises(CheckpointError, match="temperature"):
        described(tmp_path, json.dumps(config))
