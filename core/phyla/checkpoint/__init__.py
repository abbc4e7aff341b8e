"""A checkpoint on disk, read by its headers: what it holds, before any weight is loaded."""

from phyla.checkpoint.checkpoint import Checkpoint, QuantizationScheme, TensorInfo, TokenizerData

__all__ = ["Checkpoint", "QuantizationScheme", "TensorInfo", "TokenizerData"]
