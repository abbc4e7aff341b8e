"""The tool calls of Llama 3: a reply that is a JSON object, `{"name": ..., "parameters": {...}}`.

Nothing closes it, and at most `<|python_tag|>` opens it. Any JSON could be meant by an object
without the tag: it counts only where it names a tool that was offered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.tools.calls import CUT, CallError, CallWriter, NotACall, StreamedBlock
from phyla.tools.json_call import CallObject, call_json, skip_object
from phyla.tools.json_text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from phyla.messages import Tool, ToolCall
    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.format import BlockParser

TAG, BARE = "<|python_tag|>", "{"


@dataclass(frozen=True)
class LlamaJsonFormat:
    """`{"name": "f", "parameters": {"a": 1}}`, several with `;` or blanks between them.

    Attributes:
        only_first: which of `opens` open a block only where a reply's text begins.
    """

    name: str = "llama-json"
    opens: tuple[str, ...] = (TAG, BARE)
    only_first: tuple[str, ...] = (BARE,)

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        names = frozenset(tool.name for tool in tools)
        return StreamedBlock(lambda cursor, calls: _read(cursor, calls, names))

    def opening(self, tool: str | None) -> str:
        return '{"name": "' if tool is None else f'{{"name": {quoted(tool)}, "parameters":'

    def written(self, calls: Sequence[ToolCall]) -> str:
        """The calls as a model writes them."""
        return "; ".join(call_json(call, arguments_key="parameters") for call in calls)


def _read(cursor: Cursor, calls: CallWriter, names: frozenset[str]) -> Need[None]:
    tagged = yield from cursor.accept(TAG)
    yield from cursor.spaces()
    char = yield from cursor.peek()
    if char != "{":
        # What follows the tag may be code for an interpreter, which is text to us.
        error = CallError(CUT, cut=True) if char == "" else NotACall("no JSON object follows")
        calls.failed(cursor.cut(), error)
        return
    known = None if tagged else names.__contains__
    first = True
    while True:
        error = yield from _read_object(cursor, calls, known)
        if isinstance(error, NotACall) and not first:
            # After a call, whatever is no call is text.
            cursor.back_to(0)
            return
        if error is None and (yield from cursor.accept("}")):
            calls.note("an extra closing brace was dropped")
        raw = cursor.cut()
        if error is not None:
            calls.failed(raw, error)
            return
        calls.parsed(raw)
        first = False
        yield from cursor.spaces()
        if (yield from cursor.accept(";")) or (yield from cursor.accept(",")):
            yield from cursor.spaces()
        yield from cursor.accept(TAG)
        if (yield from cursor.peek()) != "{":
            cursor.back_to(0)
            return


def _read_object(
    cursor: Cursor, calls: CallWriter, known: Callable[[str], bool] | None
) -> Need[CallError | None]:
    call = CallObject(
        cursor, calls, arguments_key="parameters", known=known, only_call_keys=known is not None
    )
    try:
        yield from call.read()
    except CallError as error:
        if not error.cut and not calls.announced and known is not None:
            return NotACall(error.reason)
        if not error.cut and call.depth:
            yield from skip_object(cursor, depth=call.depth)
        return error
    return None
