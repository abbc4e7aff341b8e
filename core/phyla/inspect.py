"""What can be said of a model from its files, before any weight is read: a report of plain values.

Imports MLX only when a report is made.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict
from typing_extensions import assert_never

from phyla.errors import TemplateError
from phyla.incomplete import TOKENIZER, complete, missing_files
from phyla.kv_quantization import read_kv_quantization
from phyla.messages import Message, Tool, ToolCall, ToolResult
from phyla.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import mlx.core as mx

    from phyla.checkpoint import Checkpoint, QuantizationScheme
    from phyla.engine.loading import Blueprint
    from phyla.engine.template import ChatTemplate
    from phyla.engine.weight_plan import WeightPlan
    from phyla.family import CacheKind, Family, Full, Sliding
    from phyla.kv_quantization import KVQuantization, KVQuantizationLike, Quantized

# A text that no template writes by itself.
_PROBE = "7c1e4a"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class WeightShare(_Part):
    """The parameters that are stored in one way.

    Attributes:
        storage: a type, or a quantization such as `4-bit affine, groups of 64`.
        parameters: how many.
    """

    storage: str
    parameters: int


class PrecisionReport(_Part):
    """What the model would run with here.

    Attributes:
        device: `cpu` or `gpu`.
        blas: the matrix library, on a CPU; None elsewhere.
        activations: the type of hidden states.
        weights: `float32`, or `stored` when they stay as the file has them.
        reason: the rule that decided it, as a sentence.
    """

    device: Literal["cpu", "gpu"]
    blas: str | None
    activations: str
    weights: Literal["stored", "float32"]
    reason: str


class CacheReport(_Part):
    """What a sequence takes in memory.

    Attributes:
        layers: the kinds of cache and how many layers have each.
        bytes_per_token: what each token costs, at any length.
        fixed_bytes: windows, when full, and recurrent states; once per sequence.
        quantized: how keys and values are kept smaller, such as `8-bit keys, 4-bit values`; None
            where they are kept as they are computed.
    """

    layers: tuple[tuple[str, int], ...]
    bytes_per_token: int
    fixed_bytes: int
    quantized: str | None = None


class TokenReport(_Part):
    """A token's id and its spelling; None when it is outside the vocabulary, or there is none."""

    id: int
    text: str | None


class TemplateReport(_Part):
    """What the chat template makes of a conversation, found by rendering short ones.

    Attributes:
        names: the templates that there are.
        system: a system message reaches the model; `refused` is an error of the template, `dropped`
            means that its text vanishes.
        tools: definitions of tools reach the model.
        tool_calls: an assistant's calls and their results reach the model.
        thinking: what `thinking=` may ask for, or None.
        variables: the names that the template reads from outside.
    """

    names: tuple[str, ...]
    system: Literal["yes", "refused", "dropped"]
    tools: bool
    tool_calls: bool
    thinking: str | None
    variables: tuple[str, ...]


class Report(_Part):
    """A model as `phyla inspect` shows it.

    Attributes:
        name: what it is called.
        path: the folder or the file.
        format: how weights are stored.
        size_bytes: all tensors, as stored; 0 where there are none.
        missing: the files that the model needs to run and its folder does not have. Without weights
            what is told of them is what config.json describes.
        family: the family that would run it.
        distribution: the package that brings the family, and its version.
        dialect: how its text is marked.
        model_type: config.json's.
        architectures: config.json's.
        modalities: what it reads: text, and what the checkpoint holds towers for.
        parameters: how many there are, whatever they are packed into.
        weights: how they are stored, the most parameters first; empty without weights.
        precision: what it would run with here.
        layers: how many there are.
        vocab_size: rows of the head.
        context: how many tokens it was made for; None when config.json does not say.
        cache: what a sequence takes in memory.
        eos: the tokens that end a turn.
        reasoning: the texts around a reasoning span, or None.
        tool_format: how the model writes tool calls; None if it writes none.
        tool_opens: the texts that open a block of calls.
        tool_closes: the texts that close one.
        template: what the chat template can do; None if there is none.
        template_error: why the template cannot be used; None if it can.
        sampling: the options that the checkpoint recommends.
    """

    name: str
    path: str
    format: str
    size_bytes: int
    missing: tuple[str, ...] = ()
    family: str
    distribution: str
    dialect: str
    model_type: str | None
    architectures: tuple[str, ...]
    modalities: tuple[str, ...]
    parameters: int
    weights: tuple[WeightShare, ...]
    precision: PrecisionReport
    layers: int
    vocab_size: int
    context: int | None
    cache: CacheReport
    eos: tuple[TokenReport, ...]
    reasoning: tuple[str, str] | None
    tool_format: str | None
    tool_opens: tuple[str, ...]
    tool_closes: tuple[str, ...]
    template: TemplateReport | None
    template_error: str | None
    sampling: Options


def inspect(
    checkpoint: Checkpoint,
    family: Family,
    *,
    distribution: str,
    dtype: str | None = None,
    kv_bits: KVQuantizationLike = None,
) -> Report:
    """Report on a checkpoint, as the family reads it. No weight is read, and there may be none.

    Args:
        checkpoint: an opened checkpoint.
        family: the family that would run it.
        distribution: the package that brings the family.
        dtype: as for `phyla.load`.
        kv_bits: as for `phyla.load`.

    Raises:
        PhylaError: what loading it would raise before it reads weights, but for files that are
            missing.
    """
    from phyla.backend import on_cpu, prepare

    cpu, blas = on_cpu(), prepare()
    from phyla.engine.loading import plan
    from phyla.engine.resolve import checkpoint_options
    from phyla.engine.template import ChatTemplate
    from phyla.engine.weight_plan import plan_weights
    from phyla.engine.weights import check_weights

    missing = missing_files(checkpoint)
    decide = complete if missing else plan
    blueprint = decide(checkpoint, family, dtype=dtype)
    precision, held = blueprint.precision, bool(checkpoint.tensors)
    rules = family.weights(blueprint.config, checkpoint) if held else ()
    weights = plan_weights(blueprint.checkpoint, rules)
    # Its arrays are lazy: building it costs neither memory nor time.
    model = family.model(blueprint.config)
    if held:
        check_weights(model, checkpoint, rules)
    kinds = model.cache_kinds()
    template = ChatTemplate(checkpoint.chat_templates, blueprint.tokenizer.special_tokens)
    found, error = _template_report(template, blueprint)
    marks, calls = blueprint.dialect.reasoning, blueprint.dialect.tools
    return Report(
        name=checkpoint.name,
        path=str(checkpoint.path),
        format=checkpoint.format,
        size_bytes=checkpoint.nbytes,
        missing=missing,
        family=family.name,
        distribution=distribution,
        dialect=blueprint.dialect.name,
        model_type=checkpoint.model_type,
        architectures=_architectures(checkpoint.config),
        modalities=_modalities(blueprint),
        parameters=weights.parameters,
        weights=_shares(weights) if held else (),
        precision=PrecisionReport(
            device="cpu" if cpu else "gpu",
            blas=blas if cpu else None,
            activations=str(precision.activations).removeprefix("mlx.core."),
            weights=precision.weights,
            reason=precision.reason,
        ),
        layers=len(kinds),
        vocab_size=blueprint.config.vocab_size,
        context=blueprint.config.context_length,
        cache=cache_report(kinds, precision.activations, read_kv_quantization(kv_bits)),
        eos=_eos(blueprint, known=TOKENIZER not in missing),
        reasoning=None if marks is None else (marks.open, marks.close),
        tool_format=None if calls is None else calls.name,
        tool_opens=() if calls is None else calls.opens,
        tool_closes=() if calls is None else blueprint.dialect.call_ends,
        template=found,
        template_error=error,
        sampling=checkpoint_options(checkpoint.generation_config),
    )


def _eos(blueprint: Blueprint, *, known: bool) -> tuple[TokenReport, ...]:
    token_text = blueprint.tokenizer.token_text
    return tuple(
        TokenReport(id=index, text=token_text(index) if known else None)
        for index in sorted(blueprint.eos)
    )


def _modalities(blueprint: Blueprint) -> tuple[str, ...]:
    from phyla.modality import MODALITIES

    able = (name for name in MODALITIES if blueprint.media.get(name) is not None)
    return ("text", *able)


def _architectures(config: Mapping[str, object]) -> tuple[str, ...]:
    names = config.get("architectures")
    return tuple(str(name) for name in names) if isinstance(names, list | tuple) else ()


def _shares(plan: WeightPlan) -> tuple[WeightShare, ...]:
    shares = [
        *((scheme_text(scheme), count) for scheme, count in plan.quantized.items()),
        *plan.unquantized.items(),
    ]
    shares.sort(key=lambda share: -share[1])
    return tuple(WeightShare(storage=storage, parameters=count) for storage, count in shares)


def scheme_text(scheme: QuantizationScheme) -> str:
    """A quantization in words."""
    return f"{scheme.bits}-bit {scheme.mode}, groups of {scheme.group_size}"


def cache_report(
    kinds: Sequence[CacheKind], dtype: mx.Dtype, quantized: KVQuantization | None = None
) -> CacheReport:
    """What the caches of one sequence take.

    Args:
        kinds: one per layer.
        dtype: the activations' type.
        quantized: how keys and values are kept smaller, if they are.
    """
    from phyla.engine.layers import Allocation

    return CacheReport(
        layers=tuple(Counter(_kind_text(kind) for kind in kinds).items()),
        bytes_per_token=Allocation(tuple(kinds), dtype, quantized).token_bytes,
        fixed_bytes=sum(_fixed_bytes(kind, dtype, quantized) for kind in kinds),
        quantized=None if quantized is None else _quantized_text(quantized),
    )


def _quantized_text(quantized: KVQuantization) -> str:
    def side(name: str, how: Quantized | None) -> str:
        return f"{name} as computed" if how is None else f"{how.bits}-bit {name}"

    return f"{side('keys', quantized.keys)}, {side('values', quantized.values)}"


def _kind_text(kind: CacheKind) -> str:
    from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding

    match kind:
        case Full():
            return f"full attention, {_heads(kind)}"
        case Sliding(window=window):
            return f"sliding window of {window}, {_heads(kind)}"
        case Recurrent(shapes=shapes):
            return "recurrent state, " + " and ".join("x".join(map(str, each)) for each in shapes)
        case SharedWith():
            return "shared with an earlier layer"
        case NoCache():
            return "none"
        case _:
            assert_never(kind)


def _heads(kind: Full | Sliding) -> str:
    dims = {kind.key_dim, kind.value_dim}
    size = "+".join(map(str, (kind.key_dim, kind.value_dim))) if len(dims) > 1 else str(*dims)
    return f"{kind.heads} key-value heads of {size}"


def _fixed_bytes(kind: CacheKind, dtype: mx.Dtype, quantized: KVQuantization | None) -> int:
    from phyla.engine.layers import Allocation
    from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding

    match kind:
        case Sliding(window=window, heads=heads, key_dim=key_dim, value_dim=value_dim):
            # A token of a window costs what it costs where all are kept.
            kept = Full(heads=heads, key_dim=key_dim, value_dim=value_dim)
            return window * Allocation((kept,), dtype, quantized).token_bytes
        case Recurrent():
            return Allocation((kind,), dtype).nbytes(0)
        case Full() | SharedWith() | NoCache():
            return 0
        case _:
            assert_never(kind)


# What a template can do.


def _template_report(
    template: ChatTemplate, blueprint: Blueprint
) -> tuple[TemplateReport | None, str | None]:
    names = tuple(sorted(blueprint.checkpoint.chat_templates))
    if not names:
        return None, None
    try:
        variables = template.variables
    except TemplateError as error:
        return None, error.message
    report = TemplateReport(
        names=names,
        system=_system(template),
        tools=_shows(template, [_USER], tools=[Tool(name=f"find_{_PROBE}")]),
        tool_calls=_shows(template, _CALLING),
        thinking=", ".join(blueprint.dialect.thinking.choices) or None,
        variables=tuple(sorted(variables)),
    )
    return report, None


_USER = Message(role="user", content="Hello")
_CALLING = [
    _USER,
    Message(role="assistant", content=(ToolCall(id="call00001", name=f"find_{_PROBE}"),)),
    Message(role="tool", content=(ToolResult(call_id="call00001", text=f"found {_PROBE}"),)),
]


def _system(template: ChatTemplate) -> Literal["yes", "refused", "dropped"]:
    try:
        text = template.render([Message(role="system", content=_PROBE), _USER])
    except TemplateError:
        return "refused"
    return "yes" if _PROBE in text else "dropped"


def _shows(template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> bool:
    """Whether every probe in the messages and tools comes out of the template."""
    wanted = [f"find_{_PROBE}"]
    if len(messages) > 1:
        wanted.append(f"found {_PROBE}")
    try:
        text = template.render(messages, tools)
    except TemplateError:
        return False
    return all(probe in text for probe in wanted)
