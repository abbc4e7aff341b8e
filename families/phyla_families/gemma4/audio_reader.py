"""How Gemma 4 hears: log-mel frames for its tower, or without one the samples themselves."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, cast

import numpy as np

from phyla.family import MediaReader, Plan, Prepared, Soft
from phyla.media import mel_picture
from phyla_families.gemma4 import tokens
from phyla_families.gemma4.mel import MelFrames
from phyla_families.gemma4.settings import MelSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla.family import MediaRequest
    from phyla.media import AudioClip

# The models were trained on no more; what follows is not heard.
_SECONDS = 30


class AudioReader(MediaReader["AudioClip"]):
    """Reads audio.

    Args:
        rate: samples per second.
    """

    token = tokens.AUDIO

    def __init__(self, rate: int) -> None:
        self._rate = rate

    def plan(self, item: AudioClip, request: MediaRequest) -> Plan:
        """One run of soft tokens between the marks of audio; of a long clip, its beginning."""
        whole = math.ceil(round(item.seconds * self._rate, 3))
        heard = min(whole, _SECONDS * self._rate)
        if request.max_tokens is not None:
            heard = min(heard, self.samples(request.max_tokens))
        count = self.count(heard)
        if count < 1:
            raise ValueError(
                f"it is too short: {item.seconds:.3f} seconds"
                if self.count(whole) < 1
                else f"audio takes at least one token, and {request.max_tokens} are allowed; raise "
                "'max_tokens'"
            )
        soft = Soft(tokens.AUDIO, count)
        return Plan(pieces=(tokens.AUDIO_BEGIN, soft, tokens.AUDIO_END), layout=heard)

    def prepare(self, item: AudioClip, plan: Plan) -> Prepared:
        """`frames`: what the tower or the projector reads, float32 `[N, width]`."""
        heard = cast("int", plan.layout)
        samples = item.samples(self._rate)[:heard]
        # A resampler may round the number of samples in another way than the plan did.
        samples = np.pad(samples, (0, heard - len(samples))).astype(np.float32)
        caption = f"{heard / self._rate:.2f} of {item.seconds:.2f} seconds, {plan.count} tokens"
        return Prepared(
            {"frames": self.frames(samples)}, lambda: [(caption, mel_picture(self.mel(samples)))]
        )

    @abstractmethod
    def count(self, samples: int) -> int:
        """How many soft tokens so many samples take."""

    @abstractmethod
    def samples(self, count: int) -> int:
        """The most samples that take so many soft tokens."""

    @abstractmethod
    def frames(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the model reads of them, `[N, width]`."""

    @abstractmethod
    def mel(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Log-mel frames, for a picture."""


class MelReader(AudioReader):
    """Reads audio for the tower, which makes one soft token of four frames.

    Args:
        settings: of the frames.
    """

    def __init__(self, settings: MelSettings) -> None:
        super().__init__(settings.sampling_rate)
        self._mel = MelFrames(settings)

    def count(self, samples: int) -> int:
        """One for four frames, or for what is left of them."""
        return -(-self._mel.count(samples) // 4)

    def samples(self, count: int) -> int:
        """The most samples that take so many soft tokens."""
        return self._mel.samples(4 * count)

    def frames(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Log-mel frames."""
        return self._mel(samples)

    def mel(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same frames."""
        return self._mel(samples)


class SampleReader(AudioReader):
    """Reads audio for the model without a tower.

    Args:
        rate: samples per second.
        width: how many samples become one soft token; the last is filled up with silence.
    """

    def __init__(self, rate: int, width: int) -> None:
        super().__init__(rate)
        self._width = width

    def count(self, samples: int) -> int:
        """One for each `width` samples, or for what is left of them."""
        return -(-samples // self._width)

    def samples(self, count: int) -> int:
        """The most samples that take so many soft tokens."""
        return count * self._width

    def frames(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The samples themselves."""
        return np.pad(samples, (0, -len(samples) % self._width)).reshape(-1, self._width)

    def mel(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Frames that the model does not see; samples would tell people nothing."""
        settings = MelSettings(sampling_rate=self._rate, max_frequency=self._rate / 2)
        return MelFrames(settings)(samples)
