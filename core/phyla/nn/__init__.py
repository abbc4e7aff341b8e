"""Building blocks from the literature, shared by families and known to the core's fast paths."""

from phyla.nn.activations import swiglu
from phyla.nn.decoder import (
    Attention,
    AttentionShape,
    CausalDecoder,
    DecoderLayer,
    GatedMLP,
)
from phyla.nn.fusion import Fusable, fuse, join_linears
from phyla.nn.moe import ExpertLinear, ExpertMLPs, QuantizedExpertLinear, SparseMoE
from phyla.nn.rope import Rope, Rotation

__all__ = [
    "Attention",
    "AttentionShape",
    "CausalDecoder",
    "DecoderLayer",
    "ExpertLinear",
    "ExpertMLPs",
    "Fusable",
    "GatedMLP",
    "QuantizedExpertLinear",
    "Rope",
    "Rotation",
    "SparseMoE",
    "fuse",
    "join_linears",
    "swiglu",
]
