"""Building blocks from the literature, shared by families and known to the core's fast paths."""

from phyla.backend import prepare

# Before a module in here imports mlx: afterwards it is too late for a faster BLAS.
prepare()

# ruff: noqa: E402
from phyla.nn.activations import GatedActivation, geglu, gelu_tanh, silu, swiglu
from phyla.nn.conv import CausalConv1d
from phyla.nn.decoder import (
    Attention,
    AttentionShape,
    CausalDecoder,
    DecoderLayer,
    GatedMLP,
    Layer,
    scaled,
)
from phyla.nn.delta_net import DeltaNetShape, GatedDeltaNet
from phyla.nn.delta_rule import gated_delta_rule
from phyla.nn.fusion import Fusable, fuse, join_linears
from phyla.nn.gated_attention import GatedAttention
from phyla.nn.hybrid import HybridDecoder
from phyla.nn.latent_attention import LatentAttention, LatentShape
from phyla.nn.mamba2 import Mamba2, Mamba2Shape
from phyla.nn.moe import (
    ExpertLinear,
    ExpertMLPs,
    QuantizedExpertLinear,
    SparseMoE,
    through_experts,
    weighted_sum,
)
from phyla.nn.norms import ZeroCentredRMSNorm
from phyla.nn.outputs import reorder_outputs
from phyla.nn.rope import Rope, Rotation
from phyla.nn.routing import SigmoidRouter
from phyla.nn.shared_expert import SharedExpertMoE
from phyla.nn.short_conv import ShortConv
from phyla.nn.vision import VisionAttention, VisionBlock, VisionMLP, VisionRotation, attend_within
from phyla.nn.wide import Wide, wide_parameters

__all__ = [
    "Attention",
    "AttentionShape",
    "CausalConv1d",
    "CausalDecoder",
    "DecoderLayer",
    "DeltaNetShape",
    "ExpertLinear",
    "ExpertMLPs",
    "Fusable",
    "GatedActivation",
    "GatedAttention",
    "GatedDeltaNet",
    "GatedMLP",
    "HybridDecoder",
    "LatentAttention",
    "LatentShape",
    "Layer",
    "Mamba2",
    "Mamba2Shape",
    "QuantizedExpertLinear",
    "Rope",
    "Rotation",
    "SharedExpertMoE",
    "ShortConv",
    "SigmoidRouter",
    "SparseMoE",
    "VisionAttention",
    "VisionBlock",
    "VisionMLP",
    "VisionRotation",
    "Wide",
    "ZeroCentredRMSNorm",
    "attend_within",
    "fuse",
    "gated_delta_rule",
    "geglu",
    "gelu_tanh",
    "join_linears",
    "reorder_outputs",
    "scaled",
    "silu",
    "swiglu",
    "through_experts",
    "weighted_sum",
    "wide_parameters",
]
