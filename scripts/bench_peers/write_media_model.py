"""Writes a model of media_models.py with random weights: python write_media_model.py TYPE FOLDER.

The names of the weights are those that transformers writes. Needs the `parity` extra.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The tables are imported by their package's name, as bench_media.py does.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_peers.media_models import MEDIA_MODELS

from phyla.testing import MARKS
from phyla.testing.files import write_files
from phyla.testing.reference import random_tensors, tensor_shapes
from phyla.testing.sight import template

if TYPE_CHECKING:
    from bench_peers.media_models import MediaModel

# Bounds of clipped projections that cut a few values and not most.
_BOUND = 4.0


def write_media_model(model: MediaModel, folder: Path) -> None:
    """Write config, weights, tokenizer and preprocessor files."""
    import mlx.core as mx

    _reference(model.config).save_pretrained(folder)
    shapes = tensor_shapes(folder)
    # Transformers gives C-RADIO factors of one that published files have not.
    tensors = random_tensors({n: s for n, s in shapes.items() if ".layer_scale" not in n})
    if model.config["model_type"] == "nemotron_h_omni":
        # These published files have, and mlx-vlm asks for them.
        conditioner = "vision_model.radio_model.input_conditioner.norm_"
        tensors[conditioner + "mean"] = mx.zeros((3, 1, 1))
        tensors[conditioner + "std"] = mx.ones((3, 1, 1))
        tensors["sound_encoder.encoder.feature_extractor.featurizer.window"] = mx.ones((400,))
    for name, tensor in tensors.items():
        if name.endswith(("put_min", "put_max")):
            tensors[name] = mx.full(tensor.shape, -_BOUND if name.endswith("min") else _BOUND)
        elif name.endswith("running_var"):
            tensors[name] = mx.abs(tensor)
    marks = (*MARKS, *model.marks)
    write_files(
        folder, model.config, tensors, chat_template=template(image=model.image), marks=marks
    )
    for name, content in model.preprocessing.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def _reference(config: Any) -> Any:
    from transformers import AutoConfig, AutoModelForImageTextToText

    keys = {key: value for key, value in config.items() if key != "model_type"}
    known: Any = AutoConfig.for_model(config["model_type"], **keys)
    if config["model_type"] == "nemotron_h_omni":
        from transformers.models.nemotron_h_omni.modeling_nemotron_h_omni import (
            NemotronH_Omni_Reasoning_V3,
        )

        return NemotronH_Omni_Reasoning_V3(known)
    return AutoModelForImageTextToText.from_config(known)


if __name__ == "__main__":
    write_media_model(MEDIA_MODELS[sys.argv[1]], Path(sys.argv[2]))
