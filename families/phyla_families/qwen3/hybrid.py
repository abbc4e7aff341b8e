"""Qwen3-Next and Qwen3.5: gated delta nets (arXiv:2412.06464), and gated attention (arXiv:2505.06708).

Three of four layers are delta nets, and the norms lie around zero. The MoE forms have a shared
expert beside the routed ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.nn import HybridDecoder
from phyla_families.qwen3.multimodal import HybridVlDecoder
from phyla_families.qwen3.vision import VisionTower

if TYPE_CHECKING:
    from phyla_families.qwen3.hybrid_config import Config


def build(config: Config) -> HybridDecoder:
    """The model that the config describes, with unset weights."""
    if config.vision is None:
        return HybridDecoder(config)
    model = HybridVlDecoder(config)
    model.visual = VisionTower(config.vision)
    return model
