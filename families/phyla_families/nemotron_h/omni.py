"""Nemotron Omni: a Nemotron-H that sees and hears."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.family import Features
from phyla_families.nemotron_h.model import NemotronH
from phyla_families.nemotron_h.omni_config import MERGE
from phyla_families.nemotron_h.projector import Projector, pixel_shuffle
from phyla_families.nemotron_h.sound import SoundEncoder
from phyla_families.nemotron_h.vision import VisionTower

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phyla.modality import Modality
    from phyla_families.nemotron_h.config import Config


def build(config: Config) -> NemotronH:
    """The decoder, with towers where there are any."""
    if config.vision is None and config.sound is None:
        return NemotronH(config)
    return NemotronOmni(config)


class NemotronOmni(NemotronH):
    """The towers' features stand in the places of embeddings; nothing else changes."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        vision, sound, out = config.vision, config.sound, config.hidden_size
        self._sees, self._hears = vision is not None, sound is not None
        self._final_norm = vision is not None and vision.final_norm
        if vision is not None:
            dim = vision.hidden_size
            self.vision_model = VisionTower(vision)
            if self._final_norm:
                self.vision_final_layernorm = nn.LayerNorm(dim, vision.layer_norm_eps)
            self.multi_modal_projector = Projector(
                MERGE**2 * dim, vision.projector_hidden_size, out
            )
        if sound is not None:
            self.audio_tower = SoundEncoder(sound)
            self.embed_audio = Projector(
                sound.hidden_size, sound.projection_hidden_size, out, bias=sound.projection_bias
            )

    def media_features(self, modality: Modality, arrays: Mapping[str, mx.array]) -> Features:
        """What the readers prepared: `frames`, `scale` and `shift`, or `mel`."""
        if modality == "audio" and self._hears:
            found = self.embed_audio(self.audio_tower(arrays["mel"]))
        elif modality != "audio" and self._sees:
            found = self._seen(arrays, film=modality == "video")
        else:
            return super().media_features(modality, arrays)
        # What embeddings come as, whether or not the table is quantized.
        return Features(found.astype(self.embeddings(mx.array([0])).dtype))

    def _seen(self, arrays: Mapping[str, mx.array], *, film: bool) -> mx.array:
        x = self.vision_model(arrays["frames"], arrays["scale"], arrays["shift"], film=film)
        if self._final_norm:
            x = self.vision_final_layernorm(x)
        return self.multi_modal_projector(pixel_shuffle(x))
