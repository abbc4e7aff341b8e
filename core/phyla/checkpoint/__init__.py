"""A checkpoint on disk, read by its headers: what it holds, before any weight is loaded."""

from phyla.checkpoint.checkpoint import Checkpoint, QuantizationScheme, TensorInfo, TokenizerData
from phyla.checkpoint.source import open_checkpoint, pull

__all__ = [
    "Checkpoint",
    "QuantizationScheme",
    "TensorInfo",
    "TokenizerData",
    "open_checkpoint",
    "pull",
]
