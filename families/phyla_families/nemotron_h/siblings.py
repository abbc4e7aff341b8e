"""Checkpoints that look like Nemotron-H by name, and are something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phyla.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIBLINGS: Mapping[str, str] = {
    "nemotron": "Nemotron (Minitron), a transformer without Mamba blocks",
    "nemotron-nas": "Nemotron-NAS (Llama-Nemotron Super and Ultra), a Llama with pruned layers",
    "deci": "DeciLM, a Llama with pruned layers",
    "nemo_speechlm": "Nemotron 3.5 Transcribe, a speech recognizer around a language model",
    "nemotron3_5_transcribe_audio": "the audio part of Nemotron 3.5 Transcribe",
    "nemotron3_5_transcribe_asr_audio": "the audio encoder of Nemotron 3.5 Transcribe",
    "nemotron3_5_transcribe_word_timestamp": "the part of Nemotron 3.5 Transcribe that times words",
    "nemotron3_5_asr": "Nemotron 3.5 ASR, a speech recognizer",
    "nemotron3_diarization": "Nemotron 3 Diarization, which tells speakers apart",
    "nemotron3_diarization_audio": "the audio encoder of Nemotron 3 Diarization",
    "nemotron_asr_streaming": "Nemotron ASR Streaming, a speech recognizer",
    "nemotron_asr_streaming_encoder": "the audio encoder of Nemotron ASR Streaming",
}


def refuse_siblings(raw: Mapping[str, Any]) -> None:
    """Look at config.json's content.

    Raises:
        UnsupportedModelError: the checkpoint is no Nemotron-H.
    """
    kind = str(raw.get("model_type"))
    if kind in SIBLINGS:
        raise UnsupportedModelError(
            f"This checkpoint is {SIBLINGS[kind]}; the family 'nemotron_h' runs Nemotron-H, "
            "Nemotron Nano v2 and Nemotron 3.",
            model_type=kind,
            hint="Use a checkpoint whose config.json says model_type 'nemotron_h'.",
        )
