"""The function-and-parameter format of Qwen3-Coder, Qwen3.5, Nemotron 3 and MiniCPM-V 4.6.

<tool_call>
<function=NAME>
<parameter=KEY>
VALUE
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.tools.calls import CUT, CallError, CallWriter, NotACall, StreamedBlock
from phyla.tools.json_call import read_calls
from phyla.tools.json_text import JsonReader, unexpected
from phyla.tools.schema import ParameterTypes
from phyla.tools.tagged import (
    FUNCTION_END,
    WRAPPER,
    WRAPPER_END,
    ArgumentWriter,
    Ending,
    ValueTags,
    read_declared,
    read_value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Tool
    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.format import BlockParser

FUNCTION, PARAMETER, VALUE_END = "<function=", "<parameter=", "</parameter>"
_NAME = re.compile(r"[^<>\n]+")
_NOT_A_TAG = re.compile(r"[^<]+")


@dataclass(frozen=True)
class FunctionXmlFormat:
    """Functions and their parameters as tags; values are bare text, typed by the tool's schema.

    A block without its wrapper counts where it names a tool that was offered.
    """

    name: str = "function-xml"
    opens: tuple[str, ...] = (WRAPPER, FUNCTION)

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        """A parser for the next block; `tools` say which type each value has."""
        return StreamedBlock(lambda cursor, calls: _Block(cursor, calls, tools).read())

    def opening(self, tool: str | None) -> str:
        """The text to seed a reply with so that it must be a call, of `tool` if one is named."""
        return f"{WRAPPER}\n{FUNCTION}" if tool is None else f"{WRAPPER}\n{FUNCTION}{tool}>\n"


class _Block:
    def __init__(self, cursor: Cursor, calls: CallWriter, tools: Sequence[Tool]) -> None:
        self._cursor, self._calls = cursor, calls
        self._schemas = {tool.name: tool.parameters for tool in tools}

    def read(self) -> Need[None]:
        cursor = self._cursor
        if not (yield from cursor.accept(WRAPPER)):
            yield from self._bare()
            return
        yield from cursor.spaces()
        char = yield from cursor.peek()
        if char in ("{", "["):
            self._calls.note("a JSON object stood for the function")
            yield from read_calls(cursor, self._calls, end=WRAPPER_END)
        elif (yield from cursor.looking_at(FUNCTION)):
            yield from self._functions()
        elif (yield from cursor.accept(WRAPPER_END)):
            self._calls.failed(cursor.cut(), CallError("it holds no call"))
        elif char == "" or cursor.cut_short(FUNCTION, WRAPPER_END):
            cursor.advance(len(cursor.unread))
            self._calls.failed(cursor.cut(), CallError(CUT, cut=True))
        else:
            self._calls.failed(cursor.cut(), NotACall("no function follows"))

    def _functions(self) -> Need[None]:
        """The functions in a wrapper, and its end."""
        cursor = self._cursor
        closed = False
        while not closed and (yield from cursor.accept(FUNCTION)):
            error: CallError | None = None
            mark = cursor.offset
            try:
                name = yield from self._name()
                closed = (yield from self._function(name, wrapped=True)) is Ending.WRAPPER
            except CallError as failure:
                error = failure
                if failure.cut:
                    closed = True
                elif self._calls.announced:
                    yield from self._skip(FUNCTION, WRAPPER_END)
                else:
                    error, closed = NotACall(failure.reason), True
            if not closed:
                mark = cursor.offset
                yield from cursor.spaces()
                closed = yield from cursor.accept(WRAPPER_END)
            if not closed and not (yield from cursor.looking_at(FUNCTION)):
                if cursor.cut_short(FUNCTION, WRAPPER_END):
                    cursor.advance(len(cursor.unread))
                else:
                    cursor.back_to(mark)
                self._calls.note(f"{WRAPPER_END} is missing")
                closed = True
            self._settle(error)

    def _bare(self) -> Need[None]:
        """A function without a wrapper, which counts if it names a tool."""
        cursor = self._cursor
        yield from cursor.accept(FUNCTION)
        error: CallError | None = None
        try:
            name = yield from read_declared(cursor, frozenset(self._schemas), ">")
            if name is None:
                raise NotACall("it names no tool")
            cursor.advance()
            self._calls.note(f"{WRAPPER} is missing")
            yield from self._function(name, wrapped=False)
            mark = cursor.offset
            yield from cursor.spaces()
            if not (yield from cursor.accept(WRAPPER_END)):
                cursor.back_to(mark)
        except CallError as failure:
            error = failure
            if self._calls.announced and not failure.cut:
                yield from self._skip(FUNCTION, FUNCTION_END, WRAPPER_END)
                yield from cursor.accept(FUNCTION_END)
                yield from cursor.accept(WRAPPER_END)
        self._settle(error)

    def _settle(self, error: CallError | None) -> None:
        raw = self._cursor.cut()
        if error is None:
            self._calls.parsed(raw)
        else:
            self._calls.failed(raw, error)

    def _function(self, name: str, *, wrapped: bool) -> Need[Ending]:
        """What follows a function's opening tag, up to its end."""
        cursor, calls = self._cursor, self._calls
        calls.announce(name)
        tags = ValueTags(VALUE_END, (PARAMETER,), FUNCTION, wrapped=wrapped)
        types = ParameterTypes(self._schemas.get(name))
        writer = ArgumentWriter(calls)
        yield from cursor.spaces()
        if (yield from cursor.looking_at("{")):
            calls.note("the arguments were one JSON object")
            yield from JsonReader(cursor, calls.note).value(calls.write)
            return (yield from self._end_of_body(wrapped=wrapped))
        ending = Ending.PARAMETER
        while ending is Ending.PARAMETER and (yield from cursor.accept(PARAMETER)):
            key = yield from self._name()
            if key in writer.keys:
                calls.note(f"{key}: it was given twice, and the last one counts")
            allowed = types.of(key)
            if allowed.only_text:
                writer.begin(key)
                writer.quote()
                _, ending = yield from read_value(cursor, calls, tags, writer.text_piece)
                writer.quote()
            else:
                text, ending = yield from read_value(cursor, calls, tags, None)
                writer.value(key, text, allowed)
        if ending is Ending.PARAMETER:
            ending = yield from self._end_of_body(wrapped=wrapped, complete=False)
        writer.end()
        return ending

    def _end_of_body(self, *, wrapped: bool, complete: bool = True) -> Need[Ending]:
        """The closing tag of a function without parameters.

        Where the output ends instead, the function is taken as closed if it is `complete`.
        """
        cursor = self._cursor
        yield from cursor.spaces()
        if (yield from cursor.accept(FUNCTION_END)):
            return Ending.FUNCTION
        char = yield from cursor.peek()
        if wrapped and (yield from cursor.accept(WRAPPER_END)):
            self._calls.note(f"{FUNCTION_END} is missing")
            return Ending.WRAPPER
        if char == "" or cursor.cut_short(PARAMETER, FUNCTION_END, WRAPPER_END):
            cursor.advance(len(cursor.unread))
            if not complete:
                raise CallError(CUT, cut=True)
            self._calls.note(f"{FUNCTION_END} is missing")
            return Ending.FUNCTION
        raise unexpected(char, FUNCTION_END if complete else PARAMETER)

    def _name(self) -> Need[str]:
        """The rest of an opening tag: the name of a function or a parameter."""
        name = (yield from self._cursor.whole_run(_NAME)).strip()
        char = yield from self._cursor.peek()
        if char != ">" or not name:
            raise unexpected(char, "a name and '>'")
        self._cursor.advance()
        if len(name) > 2 and name[0] == name[-1] and name[0] in "\"'":
            self._calls.note("quotes around a name were dropped")
            name = name[1:-1]
        return name

    def _skip(self, *markers: str) -> Need[None]:
        """Read up to the first of the markers, or to the end."""
        while True:
            self._cursor.run(_NOT_A_TAG)
            char = yield from self._cursor.peek()
            for marker in markers:
                if (yield from self._cursor.looking_at(marker)):
                    return
            if char == "":
                return
            self._cursor.advance()
