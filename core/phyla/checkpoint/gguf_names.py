"""llama.cpp's tensor names, and the Hugging Face names they stand for."""

from __future__ import annotations

import re

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    # Experts are stacked, as MLX conversions have them.
    "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
    "ffn_up_exps": "mlp.switch_mlp.up_proj",
    "ffn_down_exps": "mlp.switch_mlp.down_proj",
}

# Architectures whose converter reorders the rows of query and key projections, so that the pairs
# that rotate together are neighbours.
_INTERLEAVED = ("llama", "minicpm")


def hugging_face_name(name: str) -> str:
    """The name in transformers' layout; a name that is not known stays as it is."""
    stem, dot, suffix = name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}{dot}{suffix}"
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if block is None or block[2] not in _INNER:
        return name
    return f"model.layers.{block[1]}.{_INNER[block[2]]}{dot}{suffix}"


def interleaved_heads(name: str, architecture: str, heads: int, kv_heads: int) -> int | None:
    """How many heads a tensor's rows interleave, or None if its rows are in order."""
    if architecture not in _INTERLEAVED:
        return None
    match = re.fullmatch(r"blk\.\d+\.attn_(q|k)\.(weight|bias)", name)
    if match is None:
        return None
    return heads if match[1] == "q" else kv_heads
