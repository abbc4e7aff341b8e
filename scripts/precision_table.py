"""How far bfloat16 and 4-bit runs of every model type are from float32: the table of precision.md.

    python scripts/precision_table.py [TYPE ...]

The models are the tiny ones that the families are tested with, one of each type, with random
weights. A distance is that between the logits of all positions of a prompt: the largest and the mean
difference, as a part of the range of the float32 logits; the table has percents.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from phyla.testing import Forward, Tiny, prompt_ids, read_tiny, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Logits = NDArray[np.float32]

FAMILIES = Path(__file__).parents[1] / "tests" / "families"
TABLES = ("tiny.json", "media_tiny.json", "named_tiny.json")
TEXTS = ("text_config", "llm_config")
TOWERS = ("vision_config", "audio_config", "sound_config")
PROMPT = prompt_ids(16)
FOUR_BITS = {"bits": 4, "group_size": 32}
TITLES = (
    "type",
    "bfloat16",
    "4 bits",
    "packed product, float32",
    "packed product, bfloat16",
)


@dataclass(frozen=True)
class Distance:
    """The largest and the mean difference of logits, as a part of the reference's range."""

    largest: float
    mean: float

    @classmethod
    def between(cls, found: Logits, reference: Logits) -> Distance:
        """That of two runs of one prompt, `[T, V]` each."""
        differences = np.abs(found.astype(np.float64) - reference)
        spread = float(reference.max() - reference.min())
        return cls(float(differences.max()) / spread, float(differences.mean()) / spread)

    def __str__(self) -> str:
        return f"{100 * self.largest:.2g} / {100 * self.mean:.2g}"


@dataclass(frozen=True)
class Distances:
    """Those of one model.

    Attributes:
        half: weights and activations in bfloat16, from the same weights in float32.
        four_bits: quantized and unpacked weights, from those before.
        packed: the product with quantized weights, from that with the same weights unpacked;
            activations are in float32.
        packed_half: the same with activations in bfloat16.
    """

    half: Distance
    four_bits: Distance
    packed: Distance
    packed_half: Distance

    @classmethod
    def of(cls, tiny: Tiny, scratch: Path) -> Distances:
        """Measure them; checkpoints are written to `scratch`."""
        half = write_checkpoint(scratch / "bfloat16", tiny.config, dtype="bfloat16")
        exact = write_checkpoint(scratch / "float32", tiny.config)
        packed = write_checkpoint(scratch / "packed", tiny.config, quantize=FOUR_BITS)
        unpacked = _run(packed, "float32")
        return cls(
            half=Distance.between(_run(half, "bfloat16"), _run(half, "float32")),
            four_bits=Distance.between(unpacked, _run(exact, "float32")),
            # On a CPU activations are then float32, and matrices stay packed.
            packed=Distance.between(_run(packed, "stored"), unpacked),
            packed_half=Distance.between(_run(packed, "bfloat16"), unpacked),
        )


def _run(folder: Path, dtype: str) -> Logits:
    return Forward(folder, dtype=dtype).logits(PROMPT)


def one_of_each_type() -> Iterator[tuple[str, Tiny]]:
    """The first model of each type in the families' tables, without and with experts.

    Some types are only in the tables of models with towers. Text does not go through those, and not
    all of them can be packed: they are left out.
    """
    seen: set[str] = set()
    tables = [path for name in TABLES for path in sorted(FAMILIES.glob(f"*/{name}"))]
    for path in sorted(tables, key=lambda path: path.parent):
        for tiny in read_tiny(path).values():
            config = {key: value for key, value in tiny.config.items() if key not in TOWERS}
            text = next((config[key] for key in TEXTS if key in config), config)
            sparse = any("expert" in key and value for key, value in text.items())
            name = config.get("model_type")
            if name is None:
                continue
            title = name if "moe" in name or not sparse else f"{name}, experts"
            if title not in seen:
                seen.add(title)
                yield title, replace(tiny, config=config)


def main(types: Sequence[str]) -> None:
    """Print the table, or the rows of some types."""
    print(f"| {' | '.join(TITLES)} |")
    print(f"|---{'|---:' * (len(TITLES) - 1)}|")
    for title, tiny in one_of_each_type():
        if types and tiny.config["model_type"] not in types:
            continue
        with tempfile.TemporaryDirectory(prefix="phyla-precision-") as scratch:
            found = Distances.of(tiny, Path(scratch))
        cells = (found.half, found.four_bits, found.packed, found.packed_half)
        print(f"| {title} | {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("types", nargs="*", metavar="TYPE", help="a model type; all if none")
    main(parser.parse_args().types)
