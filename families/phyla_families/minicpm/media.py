"""What MiniCPM-V 4.6 and 4.7 read beside text: images, and videos as images of their moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import MediaReaders
from phyla_families.minicpm.image_reader import ImageReader
from phyla_families.minicpm.preprocessing import read_settings
from phyla_families.minicpm.video_reader import VideoReader

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla_families.minicpm.vision_config import VisionConfig


def vision_media(config: VisionConfig, checkpoint: Checkpoint) -> MediaReaders:
    """Readers for a checkpoint with a tower; none without.

    Raises:
        CheckpointError: a preprocessor file is wrong, or contradicts config.json.
    """
    tower = config.vision
    if tower is None:
        return MediaReaders()
    settings = read_settings(checkpoint, tower)
    # 4.7 numbers images alone.
    number_videos = settings.numbered and config.canvas is None
    return MediaReaders(
        image=ImageReader(settings.pictures, tower, number=settings.numbered),
        video=VideoReader(settings.videos, tower, number=number_videos),
    )
