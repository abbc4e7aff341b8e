"""Checkpoints that look like Qwen3 by name or type, and are something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phyla.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIBLINGS: Mapping[str, str] = {
    "qwen3_asr": "Qwen3-ASR, a speech recognizer",
    "qwen3_asr_encoder": "the audio encoder of Qwen3-ASR",
    "qwen3_tts": "Qwen3-TTS, which speaks a text and writes none",
    "qwen3_omni_moe": "Qwen3-Omni, whose thinker and talker are models of their own",
    "qwen3_omni_moe_thinker": "the thinker of Qwen3-Omni",
    "qwen3_omni_moe_text": "the text part of Qwen3-Omni's thinker",
    "qwen3_omni_moe_talker": "the talker of Qwen3-Omni, which speaks and writes no text",
    "qwen3_omni_moe_talker_text": "the inner part of Qwen3-Omni's talker, which writes no text",
    "qwen3_omni_moe_talker_code_predictor": "the part of Qwen3-Omni's talker that writes codes",
    "qwen3_omni_moe_audio_encoder": "the audio tower of Qwen3-Omni",
    "qwen3_omni_moe_vision_encoder": "the vision tower of Qwen3-Omni",
    "qwen3_vl_vision": "the vision tower of Qwen3-VL without the model behind it",
    "qwen3_vl_moe_vision": "the vision tower of Qwen3-VL without the model behind it",
    "qwen3_5_vision": "the vision tower of Qwen3.5 without the model behind it",
    "qwen3_5_moe_vision": "the vision tower of Qwen3.5 without the model behind it",
    "qwen4_exp": "Qwen3.8-Flash-Next, an architecture of its own in spite of its name",
    "qwen4_exp_text": "the text part of Qwen3.8-Flash-Next, an architecture of its own",
    "qwen4_exp_vision": "the vision tower of Qwen3.8-Flash-Next",
}

_OTHER_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def refuse_siblings(raw: Mapping[str, Any]) -> None:
    """Look at config.json's content.

    Raises:
        UnsupportedModelError: the checkpoint is no Qwen3 that writes text.
    """
    what = _sibling(raw)
    if what is not None:
        raise UnsupportedModelError(
            f"This checkpoint is {what}; the family 'qwen3' runs the text models of Qwen3, "
            f"Qwen3-Next, Qwen3-VL and Qwen3.5.",
            model_type=raw.get("model_type"),
            hint="Use one of Qwen's chat models.",
        )


def _sibling(raw: Mapping[str, Any]) -> str | None:
    kind = str(raw.get("model_type"))
    if kind in SIBLINGS:
        return SIBLINGS[kind]
    names = raw.get("architectures")
    for name in names if isinstance(names, list | tuple) else ():
        if str(name).endswith(_OTHER_HEADS):
            return f"a Qwen3 with another head than a language model's ({name})"
        if str(name).startswith("Qwen3") and str(name).endswith("Model"):
            return f"a Qwen3 without a language model's head, an encoder ({name})"
    return None
