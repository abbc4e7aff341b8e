"""How Nemotron Omni hears: log-mel frames of 10 ms, one soft token for each 80 ms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np

from phyla.family import MediaReader, MediaRequest, Plan, Prepared, Soft
from phyla.media import mel_picture
from phyla_families.nemotron_h.mel import MelFrames

if TYPE_CHECKING:
    from phyla.media import AudioClip
    from phyla_families.nemotron_h.preprocessing import MelSettings

SOUND, SOUND_START, SOUND_END = "<so_embedding>", "<so_start>", "<so_end>"


class AudioReader(MediaReader["AudioClip"]):
    """Reads sounds.

    Args:
        settings: of the frames.
        bins: how many mel bins a frame has.
        factor: how many frames become one soft token.
    """

    token = SOUND

    def __init__(self, settings: MelSettings, bins: int, factor: int) -> None:
        self._rate, self._hop = settings.sampling_rate, settings.hop_length
        self._mel = MelFrames(settings, bins)
        self._factor = factor

    def plan(self, item: AudioClip, request: MediaRequest) -> Plan:
        """One run of soft tokens; of a clip that would take more than allowed, its beginning."""
        heard = math.ceil(round(item.seconds * self._rate, 3))
        if heard < 2 * self._hop:
            raise ValueError(f"it is too short: {item.seconds:.3f} seconds")
        if request.max_tokens is not None:
            if request.max_tokens < 1:
                raise ValueError(
                    f"it takes at least one token, and {request.max_tokens} are allowed; raise "
                    f"'max_tokens'"
                )
            heard = min(heard, self._mel.samples(request.max_tokens * self._factor))
        count = -(-self._mel.count(heard) // self._factor)
        return Plan(pieces=(SOUND_START, Soft(SOUND, count), SOUND_END), layout=heard)

    def prepare(self, item: AudioClip, plan: Plan) -> Prepared:
        """`mel`: what the encoder reads, float32 `[frames, bins]`."""
        heard = cast("int", plan.layout)
        samples = item.samples(self._rate)[:heard]
        # A resampler may round the number of samples in another way than the plan did.
        mel = self._mel(np.pad(samples, (0, heard - len(samples))).astype(np.float32, copy=False))
        caption = f"{heard / self._rate:.2f} of {item.seconds:.2f} seconds, {plan.count} tokens"
        return Prepared({"mel": mel}, lambda: [(caption, mel_picture(mel))])
