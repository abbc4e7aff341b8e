"""The tool calls of MiniCPM5: `<function name="f"><param name="k">v</param></function>`.

Values that hold `<`, `&` or a newline come in CDATA sections, though not always.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.tools.calls import CUT, CallError, CallWriter, NotACall, StreamedBlock
from phyla.tools.json_text import unexpected
from phyla.tools.schema import ParameterTypes
from phyla.tools.tagged import (
    FUNCTION_END,
    ArgumentWriter,
    Ending,
    ValueTags,
    read_declared,
    read_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from phyla.messages import Tool
    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.format import BlockParser

FUNCTION, PARAMETER, VALUE_END = "<function", "<param", "</param>"
CDATA, CDATA_END = "<![CDATA[", "]]>"

_TAGS = ValueTags(
    VALUE_END,
    ("<param ", "<param\n", "<param\t", "<paramname="),
    FUNCTION,
    wrapped=False,
)
_KEY = re.compile(r"[\w.:-]+")
_QUOTED = {'"': re.compile(r'[^"<>\n]+'), "'": re.compile(r"[^'<>\n]+")}
_UNQUOTED = re.compile(r"[^\s\"'<>/=]+")
_NOT_A_TAG = re.compile(r"[^<]+")
_NOT_A_BRACKET = re.compile(r"[^\]]+")


@dataclass(frozen=True)
class FunctionTagFormat:
    """`<function name="f"><param name="k">v</param></function>`, one block per call.

    Text may speak of `<function`: only the name of a tool that was offered makes it a call.
    """

    name: str = "minicpm-xml"
    opens: tuple[str, ...] = (FUNCTION,)

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        return StreamedBlock(lambda cursor, calls: _Block(cursor, calls, tools).read())

    def opening(self, tool: str | None) -> str:
        return f'{FUNCTION} name="' if tool is None else f'{FUNCTION} name="{tool}">'


class _Block:
    def __init__(self, cursor: Cursor, calls: CallWriter, tools: Sequence[Tool]) -> None:
        self._cursor, self._calls = cursor, calls
        self._schemas = {tool.name: tool.parameters for tool in tools}

    def read(self) -> Need[None]:
        cursor, calls = self._cursor, self._calls
        yield from cursor.accept(FUNCTION)
        try:
            attributes, empty = yield from self._attributes(frozenset(self._schemas))
            if "name" not in attributes:
                raise NotACall("it has no name")
            calls.announce(attributes["name"])
            if empty:
                calls.write("{}")
            else:
                yield from self._parameters(self._schemas[attributes["name"]])
        except CallError as error:
            if error.cut:
                cursor.advance(len(cursor.unread))
            elif calls.announced:
                yield from self._skip_function()
            else:
                error = NotACall(error.reason)
            calls.failed(cursor.cut(), error)
        else:
            calls.parsed(cursor.cut())

    def _parameters(self, schema: dict[str, object]) -> Need[None]:
        cursor, calls = self._cursor, self._calls
        types = ParameterTypes(schema)
        writer = ArgumentWriter(calls)
        ending = Ending.PARAMETER
        while ending is Ending.PARAMETER:
            yield from cursor.spaces()
            if (yield from cursor.accept(PARAMETER)):
                attributes, empty = yield from self._attributes(None)
                key = attributes.get("name")
                if key is None:
                    raise CallError("a parameter has no name")
                if key in writer.keys:
                    raise CallError(f"the parameter {key!r} is given twice")
                allowed = types.of(key)
                if allowed.only_text:
                    writer.begin(key)
                    writer.quote()
                    if not empty:
                        _, ending = yield from self._value(writer.text_piece)
                    writer.quote()
                else:
                    text = ""
                    if not empty:
                        text, ending = yield from self._value(None)
                    writer.value(key, text, allowed, guess=True)
            elif (yield from cursor.accept(FUNCTION_END)):
                ending = Ending.FUNCTION
            else:
                char = yield from cursor.peek()
                cut = cursor.cut_short(PARAMETER, FUNCTION_END)
                raise unexpected("" if cut else char, f"{PARAMETER} or {FUNCTION_END}")
        writer.end()

    def _value(self, stream: Callable[[str], None] | None) -> Need[tuple[str, Ending]]:
        """A value, with or without CDATA, and its closing tag."""
        cursor = self._cursor
        blank = yield from cursor.spaces()
        if (yield from cursor.accept(CDATA)):
            return (yield from self._cdata(stream)), Ending.PARAMETER
        return (yield from read_value(cursor, self._calls, _TAGS, stream, begun=blank))

    def _cdata(self, stream: Callable[[str], None] | None) -> Need[str]:
        """The text of CDATA sections; one ends where the value's closing tag follows."""
        cursor = self._cursor
        parts: list[str] = []

        def add(text: str) -> None:
            parts.append(text)
            if stream is not None:
                stream(text)

        while True:
            if run := cursor.run(_NOT_A_BRACKET):
                add(run)
            if (yield from cursor.peek()) == "":
                raise CallError(CUT, cut=True)
            if (yield from cursor.accept(CDATA_END)):
                blank = yield from cursor.spaces()
                if (yield from cursor.accept(VALUE_END)):
                    return "".join(parts)
                if not (yield from cursor.accept(CDATA)):
                    add(CDATA_END + blank)
            elif (yield from cursor.accept("]")):
                add("]")

    def _attributes(self, names: frozenset[str] | None) -> Need[tuple[dict[str, str], bool]]:
        """A tag's attributes, up to its end, and whether it closes itself.

        With `names`, the attribute `name` must be one of them.
        """
        cursor = self._cursor
        found: dict[str, str] = {}
        while True:
            blank = yield from cursor.spaces()
            if (yield from cursor.accept(">")):
                return found, False
            if (yield from cursor.accept("/>")):
                return found, True
            key = yield from cursor.whole_run(_KEY)
            if not blank and not found:
                # Some decoders lose the space.
                if key != "name":
                    raise unexpected((yield from cursor.peek()), "a space and a name")
                self._calls.note("a missing space before 'name' was added")
            yield from cursor.spaces()
            if not key or not (yield from cursor.accept("=")):
                raise unexpected((yield from cursor.peek()), "an attribute")
            yield from cursor.spaces()
            value = yield from self._attribute(names if key == "name" else None)
            found.setdefault(key, value)

    def _attribute(self, names: frozenset[str] | None) -> Need[str]:
        cursor = self._cursor
        quote = yield from cursor.peek()
        if quote not in _QUOTED:
            self._calls.note("missing quotes around an attribute were added")
            value = yield from cursor.whole_run(_UNQUOTED)
            if (yield from cursor.peek()) == "":
                raise CallError(CUT, cut=True)
            if names is not None and value not in names:
                raise NotACall("it names no tool")
            return value
        cursor.advance()
        if names is None:
            value = yield from cursor.whole_run(_QUOTED[quote])
        else:
            value = yield from read_declared(cursor, names, quote)
            if value is None:
                raise NotACall("it names no tool")
        if not (yield from cursor.accept(quote)):
            raise unexpected((yield from cursor.peek()), quote)
        return value

    def _skip_function(self) -> Need[None]:
        """Read to behind the next closing tag of a function, or to the end."""
        cursor = self._cursor
        while not (yield from cursor.accept(FUNCTION_END)):
            if (yield from cursor.peek()) == "":
                return
            if not cursor.run(_NOT_A_TAG):
                cursor.advance()
