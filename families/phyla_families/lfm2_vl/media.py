"""What an LFM2 checkpoint reads beside text: pictures, where it holds a tower for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import MediaReaders
from phyla_families.lfm2_vl.image_reader import ImageReader
from phyla_families.lfm2_vl.image_settings import read_settings

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla_families.lfm2_vl.config import Config


def media(config: Config, checkpoint: Checkpoint) -> MediaReaders:
    """The readers of a checkpoint, by its settled config.

    Raises:
        CheckpointError: the preprocessor files cannot be read.
    """
    if config.vision_config is None:
        return MediaReaders()
    return MediaReaders(image=ImageReader(read_settings(config, config.vision_config, checkpoint)))
