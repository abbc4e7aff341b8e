from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from phyla.checkpoint import Checkpoint, QuantizationScheme, TensorInfo, TokenizerData
from phyla.engine.precision import available_memory, choose_precision
from phyla.engine.weight_plan import plan_weights
from phyla.errors import RequestError

FOUR_BITS = QuantizationScheme(4, 64)
MUCH = 1 << 40


def checkpoint_of(
    tensors: dict[str, tuple[tuple[int, ...], str]], config: dict[str, Any] | None = None
) -> Checkpoint:
    return Checkpoint(
        path=Path("tiny"),
        name="tiny",
        format="safetensors",
        config=config or {},
        generation_config={},
        tensors={
            name: TensorInfo(name, shape, dtype, 0, "file")
            for name, (shape, dtype) in tensors.items()
        },
        tokenizer=lambda: TokenizerData(json=""),
        chat_templates={},
        quantization=FOUR_BITS,
        overrides={},
        load=dict,
    )


PACKED = checkpoint_of(
    {
        "a.weight": ((100, 16), "U32"),
        "a.scales": ((100, 2), "BF16"),
        "a.biases": ((100, 2), "BF16"),
        "norm.weight": ((128,), "F32"),
    }
)


def test_a_plan_counts_what_packed_weights_stand_for():
    plan = plan_weights(PACKED)
    assert plan.quantized == {FOUR_BITS: 12800}
    assert plan.unquantized == {"F32": 128}
    assert plan.scales == {"BF16": 400}
    assert (plan.parameters, plan.float32_bytes) == (12928, 4 * 12928)


def test_on_a_gpu_the_checkpoints_own_types_are_used():
    chosen = choose_precision(PACKED, requested=None, cpu=False, memory_bytes=0)
    assert (chosen.activations, chosen.weights) == (mx.bfloat16, "stored")
    assert "GPU" in chosen.reason


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_configs_type_goes_before_the_tensors(key):
    for config in ({key: "float16"}, {"text_config": {key: "float16"}}):
        checkpoint = checkpoint_of({"a": ((4,), "F32")}, config)
        chosen = choose_precision(checkpoint, requested=None, cpu=False, memory_bytes=0)
        assert chosen.activations == mx.float16


def test_on_a_cpu_weights_are_held_as_float32_when_they_fit():
    chosen = choose_precision(PACKED, requested="auto", cpu=True, memory_bytes=MUCH)
    assert (chosen.activations, chosen.weights) == (mx.float32, "float32")
    assert "fit" in chosen.reason


def test_on_a_cpu_weights_stay_as_stored_when_they_do_not_fit():
    need = plan_weights(PACKED).float32_bytes
    chosen = choose_precision(PACKED, requested=None, cpu=True, memory_bytes=need)
    assert (chosen.activations, chosen.weights) == (mx.float32, "stored")
    assert "60%" in chosen.reason


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize(
    ("requested", "activations", "weights"),
    [
        ("float32", mx.float32, "float32"),
        ("bfloat16", mx.bfloat16, "stored"),
        ("float16", mx.float16, "stored"),
    ],
)
def test_a_caller_may_override_the_rule(cpu, requested, activations, weights):
    chosen = choose_precision(PACKED, requested=requested, cpu=cpu, memory_bytes=0)
    assert (chosen.activations, chosen.weights) == (activations, weights)
    assert "requested" in chosen.reason


def test_stored_weights_on_a_cpu_still_meet_float32_activations():
    chosen = choose_precision(PACKED, requested="stored", cpu=True, memory_bytes=MUCH)
    assert (chosen.activations, chosen.weights) == (mx.float32, "stored")


def test_an_unknown_request_lists_the_choices():
    with pytest.raises(RequestError, match="auto, stored, float32") as caught:
        choose_precision(PACKED, requested="int8", cpu=True, memory_bytes=MUCH)
    assert caught.value.field == "dtype"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_available_memory_is_what_the_system_says(tmp_path):
    write(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:     4096 kB\n"})
    assert available_memory(tmp_path) == 4096 * 1024


def test_a_container_limit_counts_and_file_pages_do_not(tmp_path):
    write(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable: 4096 kB\n",
            "sys/fs/cgroup/memory.max": "1000000\n",
            "sys/fs/cgroup/memory.current": "700000\n",
            "sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 100000\n",
        },
    )
    assert available_memory(tmp_path) == 400000


def test_a_container_without_a_limit_does_not_count(tmp_path):
    write(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable: 4096 kB\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/memory.current": "700000\n",
        },
    )
    assert available_memory(tmp_path) == 4096 * 1024


def test_elsewhere_than_on_linux_the_physical_memory_counts(tmp_path):
    assert available_memory(tmp_path) > 0
