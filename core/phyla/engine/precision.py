"""Which types a model computes in and holds its weights in. Knows no model.

On a GPU both are the checkpoint's own. On a CPU, MLX multiplies bfloat16 matrices about 70 times
slower than float32 ones, and its quantized product with 16-bit activations is slow and inaccurate;
so activations are float32 there, and weights are held as float32 when they fit in memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import mlx.core as mx

from phyla.engine.weight_plan import WeightPlan, plan_weights
from phyla.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phyla.checkpoint import Checkpoint

# The share of the free memory that float32 weights may take; caches and activations need the rest.
_SHARE = 0.6

_CHOICES = ("auto", "stored", "float32", "bfloat16", "float16")
_BY_NAME = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
_BY_HEADER = {"F32": mx.float32, "BF16": mx.bfloat16, "F16": mx.float16}


@dataclass(frozen=True)
class Precision:
    """The types to load and run with.

    Attributes:
        activations: what hidden states are in; norms and other vectors, and the scales of
            quantized layers, are held in it too.
        weights: matrices as the file stores them, or all unpacked to float32.
        reason: one sentence on why.
    """

    activations: mx.Dtype
    weights: Literal["stored", "float32"]
    reason: str


def choose_precision(
    checkpoint: Checkpoint, *, requested: str | None, cpu: bool, memory_bytes: int
) -> Precision:
    """Apply the rule, or the caller's override.

    Args:
        checkpoint: the model.
        requested: None or `auto` for the rule; `float32` to compute and hold everything in float32;
            `bfloat16` or `float16` for the activations with weights as stored; `stored` for weights
            as stored with the activations of the rule.
        cpu: whether MLX computes on the CPU.
        memory_bytes: how much memory is free; see `available_memory`.

    Raises:
        RequestError: `requested` is none of these.
    """
    if requested not in (None, *_CHOICES):
        raise RequestError(
            f"dtype should be one of {', '.join(_CHOICES)}, found {requested!r}.",
            field="dtype",
            expected=_CHOICES,
            found=requested,
        )
    plan = plan_weights(checkpoint)
    own = _own_dtype(checkpoint.config, plan)
    if requested == "float32":
        return Precision(mx.float32, "float32", "float32 throughout, as requested.")
    if requested in _BY_NAME:
        return Precision(
            _BY_NAME[requested],
            "stored",
            f"{requested} activations, weights as stored, as requested.",
        )
    if not cpu:
        why = "weights as stored, as requested" if requested else "as the checkpoint stores it"
        return Precision(own, "stored", f"{_name(own)} activations on a GPU; {why}.")
    if requested == "stored":
        return Precision(
            mx.float32, "stored", "float32 activations on a CPU; weights as stored, as requested."
        )
    need, room = _size(plan.float32_bytes), _size(memory_bytes)
    if plan.float32_bytes <= _SHARE * memory_bytes:
        return Precision(
            mx.float32,
            "float32",
            f"float32 is fastest on a CPU, and the weights fit: {need} of {room} free.",
        )
    return Precision(
        mx.float32,
        "stored",
        f"float32 activations on a CPU; weights as stored, since {need} in float32 is more than "
        f"{_SHARE:.0%} of the {room} free.",
    )


def _own_dtype(config: Mapping[str, Any], plan: WeightPlan) -> mx.Dtype:
    """The config's type; else the one that most floating-point values of the file have."""
    nested = config.get("text_config")
    for source in (config, nested if isinstance(nested, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            found = _BY_NAME.get(str(source.get(key)).removeprefix("torch."))
            if found is not None:
                return found
    counts = {
        dtype: plan.unquantized.get(label, 0) + plan.scales.get(label, 0)
        for label, dtype in _BY_HEADER.items()
    }
    most = max(counts, key=lambda dtype: counts[dtype])
    return most if counts[most] else mx.bfloat16


def _name(dtype: mx.Dtype) -> str:
    return next(name for name, each in _BY_NAME.items() if each == dtype)


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still take, as the system and its container see it.

    Reads /proc/meminfo and the limits of cgroup v2 and v1 below `root`; elsewhere than on Linux,
    the machine's physical memory.
    """
    limits = [_meminfo(root), _cgroup_room(root)]
    known = [limit for limit in limits if limit is not None]
    if known:
        return max(0, min(known))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _meminfo(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        key, _, rest = line.partition(":")
        if key == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _cgroup_room(root: Path) -> int | None:
    for folder, limit_name, used_name in (
        ("sys/fs/cgroup", "memory.max", "memory.current"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, used = _lines(root / folder / limit_name), _lines(root / folder / used_name)
        if limit and used and limit[0].isdigit() and used[0].isdigit():
            return int(limit[0]) - int(used[0]) + _reclaimable(root / folder / "memory.stat")
    return None


def _reclaimable(stat: Path) -> int:
    """File pages count as used but are given back on demand, such as those of a read checkpoint."""
    for line in _lines(stat):
        key, _, value = line.partition(" ")
        if key in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
