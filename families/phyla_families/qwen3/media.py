"""What a checkpoint of Qwen3-VL or Qwen3.5 can read beside text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import MediaReaders
from phyla_families.qwen3.image_reader import ImageReader
from phyla_families.qwen3.preprocessing import image_settings, video_settings
from phyla_families.qwen3.video_reader import VideoReader

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla_families.qwen3.hybrid_config import Config as HybridConfig
    from phyla_families.qwen3.vl_config import VlConfig


def media(config: VlConfig | HybridConfig, checkpoint: Checkpoint) -> MediaReaders:
    """Pictures and videos, where there is a tower.

    Raises:
        CheckpointError: a preprocessor file cannot be read, or is not about this tower.
    """
    vision = config.vision
    if vision is None:
        return MediaReaders()
    return MediaReaders(
        image=ImageReader(image_settings(checkpoint, vision), vision.block_size),
        video=VideoReader(
            video_settings(checkpoint, vision), vision.block_size, vision.temporal_patch_size
        ),
    )
