"""`phyla inspect`: what a model is and how it would run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phyla.cli import arguments  # noqa: TC001 (read by Typer)
from phyla.cli.media_order import given_media
from phyla.cli.shell import Shell, read_bits
from phyla.cli.tables import print_fields
from phyla.cli.units import count_text, size_text

if TYPE_CHECKING:
    from phyla.inspect import Report, TemplateReport

Save = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A .png file for what the model will see; else NAME.seen.png in the current folder.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Write over the file of --save.")]


def inspect(
    context: typer.Context,
    model: arguments.Model,
    *,
    image: arguments.Images = None,
    audio: arguments.Audios = None,
    video: arguments.Videos = None,
    max_media_tokens: arguments.MaxMediaTokens = None,
    fps: arguments.Fps = None,
    max_frames: arguments.MaxFrames = None,
    allow_http: arguments.AllowHttp = False,
    save: Save = None,
    force: Force = False,
    json: arguments.Json = False,
    family: arguments.Family = None,
    revision: arguments.Revision = None,
    offline: arguments.Offline = False,
    dtype: arguments.Dtype = None,
    kv_bits: arguments.KvBits = None,
) -> None:
    """Tell what a model is and how it would run here; reads no weights.

    A folder with no more than a config.json is described as far as that goes.
    With images, audio or videos: what it will see of them, in numbers and as
    a picture.
    """
    import phyla.inspect
    from phyla.checkpoint import open_checkpoint
    from phyla.cli.file_names import file_names, typed_name
    from phyla.cli.look import look
    from phyla.cli.media_input import read_media
    from phyla.cli.media_wishes import read_wishes
    from phyla.cli.seen import sheet_file, show_seen
    from phyla.cli.senses import check_senses

    given = given_media(context)
    if not given and (save is not None or force):
        raise typer.BadParameter("there is no image, audio or video to save", param_hint="--save")
    if save is not None and save.suffix.lower() != ".png":
        raise typer.BadParameter("the name should end in .png", param_hint="--save")
    if given and kv_bits is not None:
        raise typer.BadParameter(
            "what a model sees does not depend on it: leave out the media", param_hint="--kv-bits"
        )
    quantized = read_bits(kv_bits)
    wishes = read_wishes(context, among={modality for modality, _ in given})
    blocks = read_media(given, allow_http=allow_http, wishes=wishes)
    registry = Shell.of(context).registry
    checkpoint = open_checkpoint(
        model, revision=revision, offline=offline or None, partial=not given
    )
    chosen = registry.family_for(checkpoint, family)
    if given:
        with file_names([typed_name(text) for _, text in given]):
            check_senses(checkpoint, chosen, [block.type for block in blocks])
            # Before there is any work to lose.
            sheet = sheet_file(save, given[0][1], force=force)
            seen = look(checkpoint, chosen, blocks, dtype=None if dtype is None else dtype.value)
        show_seen(seen, sheet, json=json)
        return
    origin = next(each for each in registry.families if each.family is chosen)
    report = phyla.inspect.inspect(
        checkpoint,
        chosen,
        distribution=f"{origin.distribution} {origin.version}".strip(),
        dtype=None if dtype is None else dtype.value,
        kv_bits=quantized,
    )
    if json:
        typer.echo(report.model_dump_json())
    else:
        print_fields(_fields(report))


def _fields(report: Report) -> list[tuple[str, str]]:
    precision = report.precision
    device = precision.device.upper() + (f" with {precision.blas}" if precision.blas else "")
    held = "held as stored" if precision.weights == "stored" else f"held as {precision.weights}"
    architecture = ", ".join(report.architectures) or "not named"
    fields = [
        ("name", report.name),
        ("path", report.path),
        ("format", _format(report)),
        *([("missing", " and ".join(report.missing))] if report.missing else []),
        ("family", f"{report.family} ({report.distribution})"),
        ("architecture", f"{architecture} (model type {report.model_type})"),
        ("modalities", ", ".join(report.modalities)),
        ("parameters", f"{count_text(report.parameters)} in {report.layers} layers"),
        *_listed(
            "stored as",
            [
                f"{share.storage}: {count_text(share.parameters)} parameters"
                for share in report.weights
            ],
        ),
        ("runs on", f"{device}; activations {precision.activations}, weights {held}"),
        ("", precision.reason),
        ("vocabulary", str(report.vocab_size)),
        ("context", "not given" if report.context is None else f"{report.context} tokens"),
        *_listed("cache", [f"{count} x {kind}" for kind, count in report.cache.layers]),
        ("", _per_token(report)),
    ]
    if report.cache.fixed_bytes:
        fields.append(("", f"and {size_text(report.cache.fixed_bytes)} a sequence"))
    fields += _listed("ends a turn", _ends(report) or ["no token"])
    fields += _dialect(report)
    fields += _template(report.template, report.template_error)
    sampling = report.sampling.model_dump(exclude_none=True)
    if sampling:
        fields.append(
            ("recommended", ", ".join(f"{name} {value}" for name, value in sampling.items()))
        )
    return fields


def _format(report: Report) -> str:
    size = f"{size_text(report.size_bytes)} of weights" if report.size_bytes else "no weights"
    return f"{report.format}, {size}"


def _per_token(report: Report) -> str:
    how = "" if report.cache.quantized is None else f", with {report.cache.quantized}"
    return f"{size_text(report.cache.bytes_per_token)} a token{how}"


def _ends(report: Report) -> list[str]:
    from phyla.incomplete import TOKENIZER

    if TOKENIZER in report.missing:
        return [str(token.id) for token in report.eos]
    return [f"{token.id} {token.text or '(outside the vocabulary)'}" for token in report.eos]


def _dialect(report: Report) -> list[tuple[str, str]]:
    """How the model marks what it says, and how it is asked to think."""
    calls = "none"
    if report.tool_format is not None:
        ends = (report.tool_opens, report.tool_closes)
        marks = " ... ".join(" or ".join(texts) for texts in ends if texts)
        calls = f"{report.tool_format}: {marks}"
    fields = [
        ("dialect", report.dialect),
        ("reasoning", " ... ".join(report.reasoning) if report.reasoning else "none"),
        ("tool calls", calls),
    ]
    if report.template is not None:
        fields.append(("thinking", report.template.thinking or "no choice"))
    return fields


def _template(report: TemplateReport | None, error: str | None) -> list[tuple[str, str]]:
    if report is None:
        return [("template", error or "none; `phyla run --raw` continues plain text")]
    names = "" if report.names == ("default",) else f" ({', '.join(report.names)})"
    features = [
        f"system message: {report.system}{names}",
        f"tools: {'yes' if report.tools else 'no'}",
        f"tool calls and results: {'yes' if report.tool_calls else 'no'}",
    ]
    return _listed("template", features)


def _listed(name: str, values: list[str]) -> list[tuple[str, str]]:
    return [(name if place == 0 else "", value) for place, value in enumerate(values)]
