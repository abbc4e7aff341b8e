"""Turns a GGUF file's metadata into what config.json and generation_config.json would say."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint.gguf_header import GgufHeader, GgufTensor

# llama.cpp's architectures and transformers' model types, where they differ.
_MODEL_TYPES = {"qwen3moe": "qwen3_moe"}
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "minicpm": "MiniCPMForCausalLM",
}
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def architecture(header: GgufHeader) -> str:
    """llama.cpp's name of the architecture.

    Raises:
        CheckpointError: the file does not say.
    """
    found = header.metadata.get("general.architecture")
    if not isinstance(found, str) or not found:
        raise CheckpointError(
            f"{header.path.name} does not say which architecture it holds.",
            file=header.path.name,
            field="general.architecture",
            found=found,
            expected="a name such as 'llama'",
            hint="Convert the model again with a current llama.cpp.",
        )
    return found


class Metadata:
    """The file's keys under its architecture, with types checked."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.architecture = architecture(header)

    def number(self, key: str) -> float | None:
        """A number, or None when the key is absent."""
        found = self.header.metadata.get(f"{self.architecture}.{key}")
        if found is None:
            return None
        if isinstance(found, list) and found and all(each == found[0] for each in found):
            found = found[0]  # one number per layer, all the same
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self._wrong(key, found, "one number for all layers")
        return found

    def whole(self, key: str) -> int | None:
        """A whole number, or None when the key is absent."""
        found = self.number(key)
        if isinstance(found, float):
            raise self._wrong(key, found, "a whole number")
        return found

    def required(self, key: str) -> int:
        """A whole number that must be there."""
        found = self.whole(key)
        if found is None:
            raise self._wrong(key, None, "a whole number")
        return found

    def text(self, key: str) -> str | None:
        """A text, or None when the key is absent."""
        found = self.header.metadata.get(f"{self.architecture}.{key}")
        if found is not None and not isinstance(found, str):
            raise self._wrong(key, found, "a text")
        return found

    def _wrong(self, key: str, found: object, expected: str) -> CheckpointError:
        name = f"{self.architecture}.{key}"
        shown = str(found)[:80]
        return CheckpointError(
            f"{self.header.path.name}: the metadata key {name!r} should be {expected}, "
            f"found {shown}.",
            file=self.header.path.name,
            field=name,
            found=found,
            expected=expected,
            hint="Convert the model again with a current llama.cpp.",
        )


def read_config(header: GgufHeader, factors: dict[str, list[float]]) -> dict[str, Any]:
    """The config, in transformers' keys.

    An architecture that is not known keeps its own name as `model_type`, and the common keys that
    its metadata has.

    Args:
        header: the file's header.
        factors: the values of its `rope_*.weight` tensors, by name.
    """
    meta = Metadata(header)
    model_type = _MODEL_TYPES.get(meta.architecture, meta.architecture)
    if model_type == "llama" and meta.whole("expert_count"):
        model_type = "mixtral"  # llama.cpp runs both under one name
    config: dict[str, Any] = {"model_type": model_type, "dtype": _dtype(header)}
    if model_type not in _CLASSES:
        return config
    config["architectures"] = [_CLASSES[model_type]]

    heads, width = meta.required("attention.head_count"), meta.required("embedding_length")
    embedding = header.tensors.get("token_embd.weight")
    head_dim = meta.whole("attention.key_length") or width // max(heads, 1)
    config |= {
        "hidden_size": width,
        "num_hidden_layers": meta.required("block_count"),
        "intermediate_size": meta.required("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.whole("attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "rms_norm_eps": meta.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": meta.number("rope.freq_base") or 10000.0,
        "max_position_embeddings": meta.whole("context_length"),
        "vocab_size": embedding.shape[0] if embedding else meta.required("vocab_size"),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in header.tensors,
    }
    rotated = meta.whole("rope.dimension_count")
    if rotated is not None and rotated != head_dim:
        config["partial_rotary_factor"] = rotated / head_dim
    scaling = _rope_scaling(meta, config, factors)
    if scaling is not None:
        config["rope_scaling"] = scaling
    match model_type:
        case "qwen3_moe":
            config |= {
                "num_experts": meta.required("expert_count"),
                "num_experts_per_tok": meta.required("expert_used_count"),
                "moe_intermediate_size": meta.required("expert_feed_forward_length"),
                "norm_topk_prob": True,  # llama.cpp's qwen3moe always does
            }
        case "minicpm":
            config |= _minicpm(meta, config)
    return config | _token_ids(header)


def _dtype(header: GgufHeader) -> str:
    """The type to compute in: block types are made of float16 scales."""
    counts: Counter[str] = Counter()
    for tensor in header.tensors.values():
        if len(tensor.shape) > 1:
            counts[tensor.type.name] += math.prod(tensor.shape)
    most = counts.most_common(1)[0][0] if counts else "F16"
    return {"F32": "float32", "BF16": "bfloat16"}.get(most, "float16")


def _rope_scaling(
    meta: Metadata, config: dict[str, Any], factors: dict[str, list[float]]
) -> dict[str, Any] | None:
    """`rope_scaling`, from the keys or from a tensor of factors.

    Llama 3's rule is stored worked out, as one divisor for each frequency (`rope_freqs.weight`):
    rope type `factors`. LongRoPE stores both its lists.
    """
    original = meta.whole("rope.scaling.original_context_length")
    if "rope_freqs.weight" in factors:
        return {"rope_type": "factors", "factors": factors["rope_freqs.weight"]}
    if "rope_factors_long.weight" in factors and "rope_factors_short.weight" in factors:
        scaling: dict[str, Any] = {
            "rope_type": "longrope",
            "long_factor": factors["rope_factors_long.weight"],
            "short_factor": factors["rope_factors_short.weight"],
            "original_max_position_embeddings": original or config["max_position_embeddings"],
        }
        if (attention := meta.number("rope.scaling.attn_factor")) is not None:
            scaling["attention_factor"] = attention
        return scaling
    kind = meta.text("rope.scaling.type")
    factor = meta.number("rope.scaling.factor") or meta.number("rope.scale_linear")
    if factor is None or kind == "none" or (factor == 1 and kind != "yarn"):
        return None
    if kind == "yarn":
        scaling = {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original or config["max_position_embeddings"],
        }
        for key in ("beta_fast", "beta_slow"):
            if (value := meta.number(f"rope.scaling.yarn_{key}")) is not None:
                scaling[key] = value
        return scaling
    return {"rope_type": "linear", "factor": factor}


def _minicpm(meta: Metadata, config: dict[str, Any]) -> dict[str, Any]:
    """The three scalings; files older than their keys are all of MiniCPM 1 and 2, which share them.

    llama.cpp stores `scale_depth / sqrt(layers)` and `hidden_size / dim_model_base`.
    """
    embedding = meta.number("embedding_scale")
    residual, logit = meta.number("residual_scale"), meta.number("logit_scale")
    depth = 1.4 if residual is None else residual * math.sqrt(config["num_hidden_layers"])
    return {
        "scale_emb": 12.0 if embedding is None else embedding,
        "scale_depth": float(f"{depth:.6g}"),
        "dim_model_base": 256 if logit is None else round(config["hidden_size"] / logit),
    }


def _token_ids(header: GgufHeader) -> dict[str, Any]:
    keys = {"bos_token_id": "bos_token_id", "pad_token_id": "padding_token_id"}
    ids: dict[str, Any] = {
        name: header.metadata[f"tokenizer.ggml.{key}"]
        for name, key in keys.items()
        if f"tokenizer.ggml.{key}" in header.metadata
    }
    if ends := _end_ids(header):
        ids["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    return ids


def _end_ids(header: GgufHeader) -> list[int]:
    """Ids that end a reply: end of sequence, of turn, of message."""
    found = [header.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    return list(dict.fromkeys(each for each in found if isinstance(each, int)))


def read_generation_config(header: GgufHeader) -> dict[str, Any]:
    """generation_config.json's keys: end tokens and the recommended sampling values."""
    found = {
        name: header.metadata[f"general.sampling.{key}"]
        for key, name in _SAMPLING.items()
        if f"general.sampling.{key}" in header.metadata
    }
    return _token_ids(header) | found


def read_templates(header: GgufHeader) -> dict[str, str]:
    """Chat templates by name; the usual one is `default`."""
    key = "tokenizer.chat_template"
    templates = {
        "default" if name == key else name.removeprefix(f"{key}."): text
        for name, text in header.metadata.items()
        if (name == key or name.startswith(f"{key}.")) and isinstance(text, str)
    }
    return templates


def is_factors(tensor: GgufTensor) -> bool:
    """Whether a tensor holds rotary factors, which belong to the config."""
    return tensor.name in (
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
    )


def read_factors(header: GgufHeader) -> dict[str, list[float]]:
    """The values of the tensors of rotary factors."""
    factors: dict[str, list[float]] = {}
    found: Sequence[GgufTensor] = [each for each in header.tensors.values() if is_factors(each)]
    for tensor in found:
        if tensor.type.name != "F32":
            raise CheckpointError(
                f"{header.path.name}: {tensor.name!r} is stored as {tensor.type.name}.",
                file=header.path.name,
                field=tensor.name,
                found=tensor.type.name,
                expected="F32",
            )
        with header.path.open("rb") as file:
            file.seek(tensor.offset)
            factors[tensor.name] = np.frombuffer(file.read(tensor.nbytes), "<f4").tolist()
    return factors
