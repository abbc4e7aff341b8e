"""How a reply is to be generated: one frozen value, every field optional. Knows no model.

A field left at None is resolved in this order: the request, the caller's defaults (given to
`phyla.load`), the checkpoint's generation_config.json, Phyla's own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from phyla.errors import RequestError
from phyla.validation import complaint, place, shown


class Options(BaseModel):
    """Options of one request.

    The sampler works in this order: logit bias, suppressed tokens, repetition, presence and
    frequency penalties, temperature, top-k, top-p, min-p. Log probabilities are taken before all of
    these.

    Attributes:
        max_tokens: how many tokens to generate at most; ours: up to the end of the context.
        temperature: 0 is greedy; ours: 0.7.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the smallest set of likeliest tokens whose probability reaches p.
        min_p: drop tokens below this fraction of the likeliest token's probability.
        repetition_penalty: divides positive and multiplies negative logits of tokens in the window
            (Keskar et al. 2019, arXiv:1909.05858).
        presence_penalty: subtracted once from the logit of each token in the window.
        frequency_penalty: subtracted per occurrence in the window.
        penalty_window: all three penalties look at this many latest tokens, prompt included; when
            absent, the repetition penalty looks at the prompt and the reply, as in transformers,
            and the other two at the reply alone, as in the OpenAI API.
        logit_bias: added to the logits, by token id.
        suppress_tokens: ids that may not be generated.
        seed: makes the reply repeatable; one is drawn and reported when absent.
        stop: texts that end the reply and are cut from it.
        stop_token_ids: ids that end the reply, next to the model's own end-of-turn ids.
        ignore_eos: keep going past the model's own end-of-turn ids.
        reasoning_budget: how many tokens the model may think; then its reasoning is closed for it
            and the answer goes on.
        logprobs: report the log probability of each token.
        top_logprobs: report this many likeliest alternatives per token (implies `logprobs`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    presence_penalty: Annotated[float, Field(allow_inf_nan=False)] | None = None
    frequency_penalty: Annotated[float, Field(allow_inf_nan=False)] | None = None
    penalty_window: Annotated[int, Field(ge=1)] | None = None
    logit_bias: dict[int, Annotated[float, Field(allow_inf_nan=False)]] | None = None
    suppress_tokens: tuple[int, ...] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    stop: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    stop_token_ids: tuple[int, ...] | None = None
    ignore_eos: bool | None = None
    reasoning_budget: Annotated[int, Field(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=100)] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_text_is_a_tuple(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def over(self, *lower: Options) -> Options:
        """These options, with what they leave open taken from `lower`, the first that says it."""
        merged: dict[str, Any] = {}
        for layer in (*reversed(lower), self):
            merged.update(layer.model_dump(exclude_none=True))
        return Options(**merged)


OptionsLike = Options | Mapping[str, Any] | None


def read_options(options: OptionsLike) -> Options:
    """Read options from a value, a mapping or nothing.

    Raises:
        RequestError: a field is unknown or out of range; the text names it.
    """
    if isinstance(options, Options):
        return options
    if options is None:
        return Options()
    if not isinstance(options, Mapping):
        raise RequestError(
            f"options should be a mapping or phyla.Options; found {shown(options)}.",
            field="options",
            expected="a mapping or phyla.Options",
            found=options,
        )
    for name in options:
        if name not in Options.model_fields:
            raise _unknown(name, options[name])
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        field = place("", first["loc"])
        raise RequestError(
            f"option {field!r} {complaint(first)}", field=field, found=first["input"]
        ) from None


def _unknown(name: object, value: object) -> RequestError:
    close = get_close_matches(name, Options.model_fields, n=1) if isinstance(name, str) else []
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return RequestError(
        f"unknown option {shown(name)}{guess}",
        field=str(name),
        expected=tuple(Options.model_fields),
        found=value,
        hint=None if close else f"The options are: {', '.join(Options.model_fields)}.",
    )
