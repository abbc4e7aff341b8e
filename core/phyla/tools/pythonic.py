"""Tool calls in Python's syntax, `[f(a=1), g(b="x")]`, and the JSON spelling of such lists.

Knows how a list of calls is written: in brackets, in a fenced block one call to a line, with or
without markers around it. Knows no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.tools.calls import CallError, CallWriter, StreamedBlock
from phyla.tools.held import CUT_OFF, HeldCall
from phyla.tools.json_call import call_json
from phyla.tools.literals import CutOff, Literal, LiteralReader, Mismatch, read_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Tool, ToolCall
    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.format import BlockParser

# How far to look for the parenthesis of something that does not begin as a call does.
LOOK = 80

_NAME = re.compile(r"[\w.:\-]*")
_KEYWORD = re.compile(r"[\w.\-]*")
_SPACE = re.compile(r"\s*")
_BLANKS = re.compile(r"[ \t]*")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-]*")
_LINE = re.compile(r"[^\n]*")
_FENCE = "```"
_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True)
class PythonicFormat:
    """Calls in Python's syntax.

    Reads a bracketed list, a fenced block, bare calls, and lists of `{"name", "arguments"}`
    objects, whichever the model writes: one model drifts from the one to the other.

    Attributes:
        name: names the format in reports.
        start: the marker that opens a block; "" if none does, and the list's bracket opens it. A
            block without a marker is one only if its first name is that of a tool.
        end: the marker that closes it, or "".
        fence: the language of the fence that the model's template writes the calls in, or "" if it
            writes a bracketed list.
    """

    name: str = "pythonic"
    start: str = ""
    end: str = ""
    fence: str = ""

    @property
    def opens(self) -> tuple[str, ...]:
        """The text that opens a block."""
        return (self.start or "[",)

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        """A parser for the next block."""
        return StreamedBlock(lambda cursor, calls: _Block(self, tools, cursor, calls).read())

    def opening(self, tool: str | None) -> str:
        """The text to seed a reply with so that it must be a call."""
        wrapper = f"{self.start}\n{_FENCE}{self.fence}\n" if self.fence else f"{self.start}["
        return wrapper if tool is None else f"{wrapper}{tool}("

    def written(self, calls: Sequence[ToolCall]) -> str:
        """The calls as a model writes them, in one block."""
        if self.fence:
            lines = "\n".join(map(_written, calls))
            return f"{self.opening(None)}{lines}\n{_FENCE}\n{self.end}"
        return f"{self.opening(None)}{', '.join(map(_written, calls))}]{self.end}"


def _written(call: ToolCall) -> str:
    """A call in Python's syntax, or as an object where that has no word for a key."""
    if all(key and _KEYWORD.fullmatch(key) for key in call.arguments):
        return f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"
    return call_json(call)


class CallArguments:
    """Reads the arguments of one call in Python's syntax, and writes them as JSON."""

    def __init__(
        self, cursor: Cursor, calls: CallWriter, reader: LiteralReader, tool: Tool | None
    ) -> None:
        self._cursor = cursor
        self._calls = calls
        self._reader = reader
        self._given: set[str] = set()
        properties = tool.parameters.get("properties") if tool else None
        self._properties: Mapping[str, object] = (
            properties if isinstance(properties, Mapping) else {}
        )
        self._positional = 0

    def read(self) -> Need[None]:
        """Read from behind the opening parenthesis to behind the closing one.

        Raises:
            Mismatch: an argument cannot be read; `depth` counts the call's parenthesis too.
            CutOff: the output ended.
        """
        cursor = self._cursor
        try:
            while True:
                yield from cursor.spaces()
                char = yield from cursor.at()
                if char == "":
                    raise CutOff
                if char == ")":
                    cursor.advance()
                    break
                if (yield from cursor.accept("**")):
                    yield from self._merge()
                else:
                    yield from self._argument(char)
                yield from self._reader.separator(")")
        except Mismatch as mismatch:
            mismatch.depth += 1
            raise
        self._calls.write("}" if self._given else "{}")

    def _argument(self, first: str) -> Need[None]:
        cursor = self._cursor
        if first.isalpha() or first == "_":
            width = yield from cursor.span(_KEYWORD, 0, LOOK)
            space = yield from cursor.span(_SPACE, width, LOOK)
            sign = yield from cursor.at(width + space)
            if sign in {"=", ":"}:
                if sign == ":":
                    self._reader.note("an argument had ':' instead of '='")
                name = cursor.glance(width)
                cursor.advance(width + space + 1)
                yield from cursor.spaces()
                yield from self._write(name)
                return
        elif first == "{":
            yield from self._object()
            return
        yield from self._write(self._next_name())

    def _write(self, name: str) -> Need[None]:
        """Read the value here and write it; a string as it comes, anything else when it is whole."""
        self._key(name)
        cursor = self._cursor
        first = yield from cursor.at()
        if first == "":
            raise CutOff
        if first not in "'\"":
            value = yield from self._reader.value(",)]}")
            self._calls.write(json.dumps(value, ensure_ascii=False, allow_nan=False))
            return
        self._calls.write('"')
        yield from self._reader.string(",)]}", lambda text: self._calls.write(inner_json(text)))
        self._calls.write('"')

    def _key(self, name: str) -> None:
        if name in self._given:
            raise Mismatch(f"the argument {name!r} is given twice")
        opening = ", " if self._given else "{"
        self._given.add(name)
        self._calls.write(f"{opening}{json.dumps(name, ensure_ascii=False)}: ")

    def _next_name(self) -> str:
        """The name of an argument that is given by its place, in the order of the tool's schema."""
        names = list(self._properties)
        if self._positional >= len(names):
            raise Mismatch(
                f"argument {self._positional + 1} has no name, and the tool's schema has none for it"
            )
        name = names[self._positional]
        self._positional += 1
        self._reader.note(f"an argument without a name was taken as {name!r}")
        return name

    def _object(self) -> Need[None]:
        """Read a dictionary given by its place: it is the arguments, if its keys are theirs."""
        value = yield from self._reader.value(",)]}")
        assert isinstance(value, dict | list)  # it began with a brace; a set is a list
        # f({"city": "Paris"}) for f(city="Paris"), which models write now and then.
        if (
            isinstance(value, dict)
            and value
            and not self._given
            and set(value) <= set(self._properties)
        ):
            self._reader.note("the arguments came as one dictionary")
            self._all(value)
            return
        self._key(self._next_name())
        self._calls.write(json.dumps(value, ensure_ascii=False, allow_nan=False))

    def _merge(self) -> Need[None]:
        """Read the dictionary behind `**`."""
        yield from self._cursor.spaces()
        value = yield from self._reader.value(",)]}")
        if not isinstance(value, dict):
            raise Mismatch("expected a dictionary behind '**'")
        self._all(value)

    def _all(self, arguments: dict[str, object]) -> None:
        for name, value in arguments.items():
            self._key(name)
            self._calls.write(json.dumps(value, ensure_ascii=False, allow_nan=False))


def inner_json(text: str) -> str:
    """A piece of a string as JSON writes it, without the quotes around it."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class _Block:
    """Reads one block."""

    def __init__(
        self, form: PythonicFormat, tools: Sequence[Tool], cursor: Cursor, calls: CallWriter
    ) -> None:
        self._form = form
        self._tools = {tool.name: tool for tool in tools}
        self._cursor = cursor
        self._calls = calls
        self._reader = LiteralReader(cursor, end=form.end, start=form.start)
        self._held = HeldCall(cursor, calls, self._reader)
        self._listed = False
        self._fenced = False

    def read(self) -> Need[None]:
        cursor = self._cursor
        yield from cursor.accept(self._form.start)
        yield from cursor.spaces()
        yield from self._fence()
        self._listed = yield from cursor.accept("[")
        if not (yield from self._begins()):
            self._held.prose(self._form.opens[0])
            return
        while (yield from self._at_item()):
            self._held.tell()
            if (yield from cursor.at()) == "{":
                yield from self._held.attempt(self._object(), self._recover)
            else:
                yield from self._call()
        yield from self._close()

    def _fence(self) -> Need[None]:
        cursor = self._cursor
        if (yield from cursor.accept(_FENCE)):
            self._fenced = True
            yield from cursor.whole_run(_LANGUAGE)
            yield from cursor.spaces()

    def _begins(self) -> Need[bool]:
        """Whether a call may stand here, or a list be empty; looks ahead, reads nothing."""
        cursor = self._cursor
        space = yield from cursor.span(_SPACE, 0)
        char = yield from cursor.at(space)
        end = self._form.end
        if char == "" or (end and (yield from cursor.sees(end, space))):
            return bool(self._form.start)
        if self._listed and char == "]":
            return bool(self._form.start)
        if char == "{":
            return bool(self._form.start)
        if char == "#" and self._fenced:
            return True
        if self._fenced and char == "[":
            return True
        if char.isalpha() or char == "_":
            width = yield from cursor.span(_NAME, space, LOOK)
            blanks = yield from cursor.span(_BLANKS, space + width, LOOK)
            after = yield from cursor.at(space + width + blanks)
            if after in {"", "("}:
                name = cursor.glance(width, space)
                return bool(self._form.start) or self._known(name, whole=after != "")
        if not self._listed:
            return self._fenced
        return bool(self._form.start) and (yield from self._broken(space)) is not None

    def _known(self, name: str, *, whole: bool) -> bool:
        """Whether this is a tool's name, or the beginning of one."""
        if whole:
            return name in self._tools
        return any(tool.startswith(name) for tool in self._tools)

    def _broken(self, ahead: int = 0) -> Need[int | None]:
        """How far it is to the parenthesis of a call whose name is wrong, or None: it is no call."""
        for offset in range(ahead, ahead + LOOK):
            char = yield from self._cursor.at(offset)
            if char == "(":
                return offset
            if char == "" or char in "\n]" or (yield from self._at_end(offset)):
                return None
        return None

    def _at_end(self, ahead: int = 0) -> Need[bool]:
        end = self._form.end
        return bool(end) and (yield from self._cursor.sees(end, ahead))

    def _at_item(self) -> Need[bool]:
        """Read up to the next call; False where there is none."""
        cursor = self._cursor
        while True:
            space = yield from cursor.span(_SPACE, 0)
            char = yield from cursor.at(space)
            if char == "" or (yield from self._at_end(space)):
                return False
            if self._fenced and (yield from cursor.sees(_FENCE, space)):
                return False
            if self._listed:
                cursor.advance(space)
                if char == "]":
                    return False
                if char not in ",;":
                    return True
                cursor.advance()
            elif char == "#":
                cursor.advance(space)
                yield from cursor.whole_run(_LINE)
            elif self._fenced:
                cursor.advance(space)
                if char == "[" and self._held.empty:
                    cursor.advance()
                    self._listed = True
                elif char in ",;":
                    cursor.advance()
                else:
                    return True
            else:
                # Nothing but a call, or one on a line of its own, goes on a block without brackets.
                ahead = space + (char in ",;")
                ahead += yield from cursor.span(_SPACE, ahead)
                if not self._held.empty and not (yield from self._call_at(ahead)):
                    return False
                cursor.advance(ahead)
                return True

    def _call_at(self, ahead: int) -> Need[bool]:
        """Whether a name and a parenthesis, or an object, stand that far ahead."""
        cursor = self._cursor
        char = yield from cursor.at(ahead)
        if char == "{":
            return True
        if not (char.isalpha() or char == "_"):
            return False
        width = yield from cursor.span(_NAME, ahead, LOOK)
        name = cursor.glance(width, ahead)
        return (yield from cursor.at(ahead + width)) == "(" and (
            not self._tools or name in self._tools
        )

    def _call(self) -> Need[None]:
        cursor = self._cursor
        first = yield from cursor.at()
        width = yield from cursor.span(_NAME, 0, LOOK)
        blanks = yield from cursor.span(_BLANKS, width, LOOK)
        after = yield from cursor.at(width + blanks)
        if after == "(" and (first.isalpha() or first == "_"):
            name = cursor.glance(width)
            cursor.advance(width + blanks + 1)
            self._calls.announce(name)
            arguments = CallArguments(cursor, self._calls, self._reader, self._tools.get(name))
            yield from self._held.attempt(arguments.read(), self._recover)
            return
        if after == "":
            cursor.advance(width + blanks)
            self._held.hold(CallError(CUT_OFF, cut=True))
            return
        reason = f"expected a call, found {cursor.glance(min(LOOK, width + blanks + 1))!r}"
        paren = yield from self._broken()
        if paren is None:
            yield from self._skip()
        else:
            cursor.advance(paren + 1)
            yield from self._recover(1)
        self._held.hold(CallError(reason))

    def _skip(self) -> Need[None]:
        """Read what is no call: a character, and on to the end of the line, the list or the block."""
        cursor = self._cursor
        cursor.advance()
        while True:
            char = yield from cursor.at()
            if char in {"", "\n"} or (char == "]" and self._listed):
                return
            if (yield from self._at_end()):
                return
            if self._fenced and (yield from cursor.sees(_FENCE)):
                return
            cursor.advance()

    def _recover(self, depth: int) -> Need[None]:
        """Read on to where a broken call ends: its bracket, the next call, or the block's end."""
        cursor = self._cursor
        opens = True  # a quote here would open a string
        while True:
            char = yield from cursor.at()
            if char == "" or (yield from self._at_end()):
                return
            if char in "'\"" and opens:
                opens = False
                try:
                    yield from self._reader.string(",:)]}", lambda text: None)
                except (Mismatch, CutOff):
                    return
                continue
            if char in ")]}":
                depth -= 1
                if char == "]" and depth <= 0:
                    return  # it closes the list
                opens = False
                cursor.advance()
                if depth <= 0 or (char == ")" and (yield from self._call_follows())):
                    return
                continue
            if char == "\n" and not self._listed and (yield from self._call_at(1)):
                return
            depth += char in "([{"
            opens = char in "([{=,:" or (opens and char.isspace())
            cursor.advance()

    def _call_follows(self) -> Need[bool]:
        """Whether a comma and a call of a tool come next."""
        cursor = self._cursor
        space = yield from cursor.span(_SPACE, 0)
        if (yield from cursor.at(space)) != ",":
            return False
        space += 1
        space += yield from cursor.span(_SPACE, space)
        return (yield from self._call_at(space))

    def _object(self) -> Need[None]:
        """Read a call that is a JSON object with a name and arguments, in any order."""
        cursor, reader = self._cursor, self._reader
        cursor.advance()
        arguments: dict[str, object] | None = None
        try:
            while True:
                yield from cursor.spaces()
                char = yield from cursor.at()
                if char == "":
                    raise CutOff
                if char == "}":
                    break
                key = yield from reader.key()
                yield from cursor.spaces()
                if not (yield from cursor.accept(":")):
                    if (yield from cursor.at()) == "":
                        raise CutOff
                    raise Mismatch("expected ':' behind a key")
                yield from cursor.spaces()
                value = yield from reader.value(",)]}", 1)
                members = {key: value} if isinstance(key, str) else {}
                if key == "function" and isinstance(value, dict):
                    members = value
                for member, inner in members.items():
                    if member == "name" and isinstance(inner, str) and not self._calls.announced:
                        self._calls.announce(inner)
                    elif member in _ARGUMENTS:
                        if arguments is not None:
                            raise Mismatch("the arguments are given twice")
                        arguments = _mapping(inner)
                yield from reader.separator("}")
            if not self._calls.announced:
                raise Mismatch("the call has no name")
        except Mismatch as mismatch:
            mismatch.depth += 1
            raise
        cursor.advance()
        self._calls.write(json.dumps(arguments or {}, ensure_ascii=False, allow_nan=False))

    def _close(self) -> Need[None]:
        """Read what closes the block; it belongs to the last call."""
        cursor, form = self._cursor, self._form
        if self._listed and not (yield from cursor.accept("]")):
            self._reader.note("the list was not closed")
        space = yield from cursor.span(_SPACE, 0)
        if self._fenced and (yield from cursor.sees(_FENCE, space)):
            cursor.advance(space + len(_FENCE))
            space = yield from cursor.span(_SPACE, 0)
        closed = yield from self._at_end(space)
        if closed:
            cursor.advance(space + len(form.end))
        elif form.end:
            self._reader.note("the closing marker was missing")
        self._held.close(cut=not closed and (yield from cursor.at(space)) == "")


def _mapping(value: object) -> dict[str, object]:
    """The arguments of a call, which may be JSON text or missing."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        match read_literal(value):
            case Literal(value=dict() as inner, end=end) if not value[end:].strip():
                return inner
            case _:
                pass
    if isinstance(value, dict):
        return value
    raise Mismatch("the arguments are no object")
