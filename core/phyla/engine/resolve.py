"""Settles a request's options: the request, the caller's defaults, the checkpoint's, ours.

Knows what the keys of generation_config.json mean; knows no model and does not import mlx.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from phyla.errors import CheckpointError, RequestError
from phyla.options import Options
from phyla.validation import expected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FILE = "generation_config.json"

# Keys whose meaning is that of an option. `max_length` is left out on purpose: it counts the prompt
# too, and most files carry the value that some training script left there.
_KEYS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
    "suppress_tokens": "suppress_tokens",
}

# Exact in JSON everywhere, so that a reported seed survives a client that reads numbers as doubles.
_SEEDS = 2**53


@dataclass(frozen=True, kw_only=True)
class ResolvedOptions:
    """`Options` with nothing left open; a field means what it means there.

    Attributes:
        max_tokens: None is up to the end of the context.
        penalty_window: None is the field's custom, see `Options`.
        reasoning_budget: None is no limit.
        logit_bias: pairs of token id and what is added to its logit, by rising id.
        logprobs: also true when `top_logprobs` asks for alternatives.
    """

    seed: int
    max_tokens: int | None = None
    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    reasoning_budget: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0


def resolve(
    request: Options, defaults: Options, generation_config: Mapping[str, Any]
) -> ResolvedOptions:
    """Take each option from the first that says it: request, defaults, generation_config, ours.

    Raises:
        CheckpointError: a key of generation_config.json that matters here has a wrong type or is
            out of range.
    """
    said = request.over(defaults, checkpoint_options(generation_config))
    values: dict[str, Any] = said.model_dump(exclude_none=True)
    values["logit_bias"] = tuple(sorted((said.logit_bias or {}).items()))
    values["logprobs"] = bool(said.logprobs or said.top_logprobs)
    if said.seed is None:
        values["seed"] = secrets.randbelow(_SEEDS)
    return ResolvedOptions(**values)


def checkpoint_options(generation_config: Mapping[str, Any]) -> Options:
    """The options that a checkpoint recommends. A key that is null counts as absent.

    `do_sample: false` is temperature 0. `do_sample: true` without a temperature is temperature 1,
    as in transformers. Without `do_sample` a temperature is taken at its word, although
    transformers would be greedy: files that give one and forget the switch are common, and nobody
    writes a temperature in order not to use it. An absent `top_k` is off, not transformers' 50.

    Raises:
        CheckpointError: a key read here has a wrong type or is out of range.
    """
    sample = generation_config.get("do_sample")
    if sample is not None and not isinstance(sample, bool):
        raise _wrong("do_sample", "true or false", sample)
    values: dict[str, Any] = {}
    for key, option in _KEYS.items():
        found = generation_config.get(key)
        if found is None:
            continue
        if key == "suppress_tokens":
            found = _token_ids(key, found)
        values[option] = found
    if sample is True:
        values.setdefault("temperature", 1.0)
    try:
        options = Options.model_validate(values, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0])
        key = next(key for key, name in _KEYS.items() if name == option)
        raise _wrong(key, expected(first), first["input"]) from None
    return options.model_copy(update={"temperature": 0.0}) if sample is False else options


def check_generation_config(generation_config: Mapping[str, Any], vocab_size: int) -> None:
    """Refuse, when a model is loaded, recommendations that no request could be run with.

    Raises:
        CheckpointError: a key read here has a wrong type or is out of range, or `suppress_tokens`
            names an id outside a vocabulary of `vocab_size` ids, or all of them.
    """
    suppressed = checkpoint_options(generation_config).suppress_tokens or ()
    outside = next((token for token in suppressed if token >= vocab_size), None)
    if outside is not None:
        raise _wrong("suppress_tokens", f"ids from 0 to {vocab_size - 1}", outside)
    if len(set(suppressed)) == vocab_size:
        raise _wrong("suppress_tokens", f"fewer than {vocab_size} ids", len(suppressed))


def check_token_ids(options: ResolvedOptions, vocab_size: int) -> None:
    """Refuse options that name tokens which a vocabulary of `vocab_size` ids does not have.

    Raises:
        RequestError: an id in `logit_bias`, `suppress_tokens` or `stop_token_ids` is out of range,
            every token is suppressed, or `top_logprobs` asks for more tokens than there are.
    """
    named: tuple[tuple[str, Iterable[int]], ...] = (
        ("logit_bias", (token for token, _ in options.logit_bias)),
        ("suppress_tokens", options.suppress_tokens),
        ("stop_token_ids", options.stop_token_ids),
    )
    for field, tokens in named:
        for token in tokens:
            if not 0 <= token < vocab_size:
                raise RequestError(
                    f"option {field!r}: there is no token {token}.",
                    field=field,
                    expected=f"ids from 0 to {vocab_size - 1}",
                    found=token,
                    hint=f"The model's ids go from 0 to {vocab_size - 1}.",
                )
    if len(set(options.suppress_tokens)) == vocab_size:
        raise RequestError(
            "option 'suppress_tokens': every token of the vocabulary is suppressed.",
            field="suppress_tokens",
            expected=f"fewer than {vocab_size} ids",
            found=vocab_size,
            hint="Leave at least one token.",
        )
    if options.top_logprobs > vocab_size:
        raise RequestError(
            f"option 'top_logprobs': asks for {options.top_logprobs} tokens of {vocab_size}.",
            field="top_logprobs",
            expected=f"at most {vocab_size}",
            found=options.top_logprobs,
            hint=f"Ask for at most {vocab_size}.",
        )


def _token_ids(key: str, found: object) -> tuple[int, ...]:
    wanted = "a list of token ids"
    if not isinstance(found, list | tuple):
        raise _wrong(key, wanted, found)
    ids: list[int] = []
    for token in found:
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise _wrong(key, wanted, found)
        ids.append(token)
    return tuple(ids)


def _wrong(key: str, expected: str, found: object) -> CheckpointError:
    return CheckpointError(
        f"{_FILE}: {key!r} should be {expected}, found {found!r}.",
        file=_FILE,
        field=key,
        expected=expected,
        found=found,
        hint="Correct or remove that line.",
    )
