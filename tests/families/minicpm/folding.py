"""MiniCPM's scalings worked into the weights of a plain Llama, which transformers can run.

There is no MiniCPM class in transformers. Multiplying the embeddings, the two output projections of
each layer and the head by the scalings gives a Llama that computes the same; its head is of its
own, also where MiniCPM's is the embedding.

Loaded by path, from the parity test and from scripts/make_golden.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import mlx.core as mx

_OWN_KEYS = ("model_type", "architectures", "scale_emb", "scale_depth", "dim_model_base")


def llama_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the Llama that computes the same."""
    kept = {key: value for key, value in config.items() if key not in _OWN_KEYS}
    head_dim = kept.pop("kv_channels", None)
    if head_dim is not None:
        kept.setdefault("head_dim", head_dim)
    return {"model_type": "llama", **kept, "tie_word_embeddings": False}


def llama_tensors(
    config: Mapping[str, Any], tensors: Mapping[str, mx.array]
) -> dict[str, mx.array]:
    """The tensors of the Llama that computes the same."""
    branch = config["scale_depth"] / math.sqrt(config["num_hidden_layers"])
    head = config["dim_model_base"] / config["hidden_size"]
    folded: dict[str, mx.array] = {}
    for name, tensor in tensors.items():
        if name == "model.embed_tokens.weight":
            folded[name] = tensor * config["scale_emb"]
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            folded[name] = tensor * branch
        elif name != "lm_head.weight":
            folded[name] = tensor
    raw = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    folded["lm_head.weight"] = raw * head
    return folded
