"""What can be said of a model from its files, before any weight is read: a report of plain values.

Imports MLX only when a report is made.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict
from typing_extensions import assert_never

from phyla.errors import TemplateError
from phyla.messages import Message, Tool, ToolCall, ToolResult
from phyla.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phyla.checkpoint import Checkpoint, QuantizationScheme
    from phyla.engine.loading import Blueprint
    from phyla.engine.template import ChatTemplate
    from phyla.engine.weight_plan import WeightPlan
    from phyla.family import CacheKind, Family, Full, Sliding

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
    """

    layers: tuple[tuple[str, int], ...]
    bytes_per_token: int
    fixed_bytes: int


class TokenReport(_Part):
    """A token's id and its spelling in the vocabulary; None when it is outside."""

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
        size_bytes: all tensors, as stored.
        family: the family that would run it.
        distribution: the package that brings the family, and its version.
        dialect: how its text is marked.
        model_type: config.json's.
        architectures: config.json's.
        modalities: what it reads: text, and what the checkpoint holds towers for.
        parameters: how many there are, whatever they are packed into.
        weights: how they are stored, the most parameters first.
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
    checkpoint: Checkpoint, family: Family, *, distribution: str, dtype: str | None = None
) -> Report:
    """Report on a checkpoint, as the family reads it. No weight is read.

    Args:
        checkpoint: an opened checkpoint.
        family: the family that would run it.
        distribution: the package that brings the family.
        dtype: as for `phyla.load`.

    Raises:
        PhylaError: what loading it would raise before it reads weights.
    """
    from phyla.backend import on_cpu, prepare

    cpu, blas = on_cpu(), prepare()
    from phyla.engine.loading import plan
    from phyla.engine.resolve import checkpoint_options
    from phyla.engine.template import ChatTemplate
    from phyla.engine.weight_plan import plan_weights
    from phyla.engine.weights import check_weights

    blueprint = plan(checkpoint, family, dtype=dtype)
    precision = blueprint.precision
    rules = family.weights(blueprint.config, checkpoint)
    weights = plan_weights(checkpoint, rules)
    # Its arrays are lazy: building it costs neither memory nor time.
    model = family.model(blueprint.config)
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
        family=family.name,
        distribution=distribution,
        dialect=blueprint.dialect.name,
        model_type=checkpoint.model_type,
        architectures=_architectures(checkpoint.config),
        modalities=_modalities(blueprint),
        parameters=weights.parameters,
        weights=_shares(weights),
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
        cache=cache_report(kinds, precision.activations.size),
        eos=tuple(
            TokenReport(id=index, text=blueprint.tokenizer.token_text(index))
            for index in sorted(blueprint.eos)
        ),
        reasoning=None if marks is None else (marks.open, marks.close),
        tool_format=None if calls is None else calls.name,
        tool_opens=() if calls is None else calls.opens,
        tool_closes=() if calls is None else blueprint.dialect.call_ends,
        template=found,
        template_error=error,
        sampling=checkpoint_options(checkpoint.generation_config),
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


def cache_report(kinds: Sequence[CacheKind], itemsize: int) -> CacheReport:
    """What the caches of one sequence take.

    Args:
        kinds: one per layer.
        itemsize: bytes of an activation.
    """
    from phyla.engine.layers import token_bytes

    return CacheReport(
        layers=tuple(Counter(_kind_text(kind) for kind in kinds).items()),
        bytes_per_token=token_bytes(kinds, itemsize),
        fixed_bytes=sum(_fixed_bytes(kind, itemsize) for kind in kinds),
    )


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


def _fixed_bytes(kind: CacheKind, itemsize: int) -> int:
    from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding

    match kind:
        case Sliding():
            return kind.heads * (kind.key_dim + kind.value_dim) * itemsize * kind.window
        case Recurrent(shapes=shapes, dtypes=dtypes):
            return sum(
                math.prod(shape) * _itemsize(dtype, itemsize)
                for shape, dtype in zip(shapes, dtypes, strict=True)
            )
        case Full() | SharedWith() | NoCache():
            return 0
        case _:
            assert_never(kind)


def _itemsize(dtype: str | None, default: int) -> int:
    if dtype is None:
        return default
    import mlx.core as mx

    return getattr(mx, dtype).size


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
