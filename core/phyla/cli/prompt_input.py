"""Where a prompt comes from: the command line, standard input, or both."""

from __future__ import annotations

import sys

import typer

from phyla.errors import EmptyInputError, RequestError


def read_prompt(argument: str | None, *, needed: bool = True) -> str:
    """The text to send: the argument, what is piped in, or the argument followed by that.

    The argument `-` stands for standard input. One line end at the end of what is piped in is
    dropped. Where none is needed, as next to an image, it may be empty.

    Raises:
        EmptyInputError: both are empty.
        RequestError: what is piped in is no text.
        typer.BadParameter: there is no argument, and standard input is a terminal.
    """
    given = None if argument == "-" else argument
    terminal = sys.stdin is None or sys.stdin.isatty()
    if argument is None and terminal and needed:
        raise typer.BadParameter("give a prompt, or pipe one in", param_hint="PROMPT")
    piped = "" if terminal and argument != "-" else _read_input()
    text = "\n\n".join(part for part in (given, piped) if part)
    if needed and not text.strip():
        raise EmptyInputError("The prompt is empty.", field="prompt", hint="Say something.")
    return text


def _read_input() -> str:
    try:
        return sys.stdin.read().removesuffix("\n") if sys.stdin is not None else ""
    except UnicodeDecodeError as error:
        raise RequestError(
            f"Standard input is no {error.encoding} text: byte {error.object[error.start]:#04x} "
            f"at position {error.start}.",
            field="prompt",
            expected=error.encoding,
            hint="Convert it, for instance with iconv.",
        ) from None
