"""The other side of a parity test: the same checkpoint, run by transformers in float32.

Needs the `parity` extra.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from phyla.testing.files import CHATML, write_files
from phyla.testing.weights import random_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

# What the config is called that transformers itself wrote, in the spelling of its version.
RESAVED_CONFIG = "config.resaved.json"


class Reference:
    """A checkpoint folder, loaded by transformers.

    Args:
        folder: the checkpoint, of an architecture that transformers has.
    """

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoConfig

        self._torch = torch
        # The class that comes out is known only once the config is read.
        self._model: Any = (
            _class_for(AutoConfig.from_pretrained(folder))
            .from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
            .eval()
        )

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """The logits `[T, V]` of every position, in one pass."""
        with self._torch.no_grad():
            return self._model(self._torch.tensor([list(ids)])).logits[0].numpy()

    def greedy(self, ids: Sequence[int], count: int) -> tuple[list[int], NDArray[np.float32]]:
        """The `count` likeliest tokens after `ids`, each after the one before, and their logits.

        The logits are `[count, V]`.
        """
        prompt = self._torch.tensor([list(ids)])
        out = self._model.generate(
            prompt,
            attention_mask=self._torch.ones_like(prompt),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        tokens = out.sequences[0, len(ids) :].tolist()
        return tokens, self._torch.cat(out.logits).numpy()


def write_reference_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    *,
    seed: int = 0,
    dtype: str = "float32",
    chat_template: str | None = CHATML,
) -> Path:
    """Write a checkpoint with random weights under the names that transformers gives them.

    config.json is as given; `config.resaved.json` is how transformers writes it.

    Args:
        folder: where to.
        config: of an architecture that transformers has.
        seed: of the weights.
        dtype: what they are stored as.
        chat_template: the chat template, or None.
    """
    from transformers import AutoConfig

    keys = {key: value for key, value in config.items() if key != "model_type"}
    known = AutoConfig.for_model(config["model_type"], **keys)
    model = _class_for(known).from_config(known)
    model.save_pretrained(folder)
    (folder / "config.json").replace(folder / RESAVED_CONFIG)
    tensors = random_tensors(tensor_shapes(folder), seed=seed, dtype=dtype)
    return write_files(folder, config, tensors, chat_template=chat_template)


def _class_for(config: Any) -> Any:
    """The class that makes a model: of text alone where there is one, else with its towers."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
    )

    has_text_model = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    return AutoModelForCausalLM if has_text_model else AutoModelForImageTextToText


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The names and shapes in a folder's model.safetensors."""
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: tuple(at["shape"]) for name, at in header.items() if name != "__metadata__"}


def random_tensors(
    shapes: Mapping[str, tuple[int, ...]], *, seed: int = 0, dtype: str = "float32"
) -> dict[str, mx.array]:
    """`random_tensor` for every name, in the type that the file shall have."""
    return {
        name: mx.array(random_tensor(name, tuple(shape), seed=seed)).astype(getattr(mx, dtype))
        for name, shape in shapes.items()
    }
