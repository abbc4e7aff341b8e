"""Reads and writes calls that are JSON objects, `{"name": ..., "arguments": {...}}`, one or several.

Several formats wrap such objects, each in its own marks.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from phyla.tools.calls import CUT, CallError, CallWriter, NotACall
from phyla.tools.json_text import JsonReader, parse, unexpected

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.messages import ToolCall
    from phyla.tools.cursor import Cursor, Need

ARGUMENT_KEYS = ("arguments", "parameters")
# Keys of no consequence that some models add.
_SILENT_KEYS = ("type", "id")
_DULL = re.compile(r'[^"\\{}\[\]<]+')


def call_json(call: ToolCall, *, arguments_key: str = "arguments") -> str:
    """A call as a JSON object."""
    return json.dumps({"name": call.name, arguments_key: call.arguments}, ensure_ascii=False)


class CallObject:
    """Reads one object; knows how far it came when the object turns out to be none."""

    def __init__(
        self,
        cursor: Cursor,
        calls: CallWriter,
        *,
        end: str | None = None,
        arguments_key: str = "arguments",
        known: Callable[[str], bool] | None = None,
        only_call_keys: bool = False,
    ) -> None:
        """Prepare to read.

        Args:
            cursor: where the object begins.
            calls: takes its name, arguments and notes.
            end: the text that closes the block, if there is one: it closes open brackets too.
            arguments_key: the usual key of the arguments; another is read with a note.
            known: says whether a name may be called; an object that names another is no call.
            only_call_keys: whether any other key than a call's means that this is no call.
        """
        self.keys = 0
        self._cursor, self._calls, self._end = cursor, calls, end
        self._arguments_key, self._known, self._only_call_keys = (
            arguments_key,
            known,
            only_call_keys,
        )
        self._json = JsonReader(cursor, calls.note, end=end)
        self._own_depth = 0
        self._named = self._argued = False

    @property
    def depth(self) -> int:
        """How many brackets are open."""
        return self._own_depth + self._json.depth

    def read(self) -> Need[None]:
        """Read the object; the calls know its name and arguments then.

        Raises:
            NotACall: it is some other object.
            CallError: it is none that can be read, or ends too early.
        """
        cursor = self._cursor
        yield from cursor.accept("{")
        self._own_depth = 1
        if (yield from cursor.accept("{")):
            # The prompt of Nemotron Nano v2 shows doubled braces.
            self._own_depth = 2
            self._calls.note("doubled braces were read as one")
        yield from cursor.spaces()
        empty = yield from cursor.accept("}")
        while not empty:
            yield from self._pair()
            yield from cursor.spaces()
            char = yield from cursor.peek()
            if char == ",":
                cursor.advance()
                yield from cursor.spaces()
                if not (yield from cursor.accept("}")):
                    continue
                self._calls.note("a comma before a closing bracket was dropped")
                break
            if char == "}":
                cursor.advance()
                break
            if self._end is not None and (yield from cursor.looking_at(self._end)):
                self._calls.note("missing closing brackets were added")
                break
            raise unexpected(char, "',' or '}'")
        self._own_depth = 0
        if not self._named:
            raise CallError("it has no name")
        if not self._argued:
            self._calls.write("{}")

    def _pair(self) -> Need[None]:
        key = yield from self._string()
        self.keys += 1
        is_call_key = key == "name" or key in ARGUMENT_KEYS or key in _SILENT_KEYS
        if self._only_call_keys and not is_call_key:
            raise NotACall(f"an object with the key {key!r} is no call")
        yield from self._json.colon()
        if key == "name" and not self._named:
            yield from self._name()
        elif key in ARGUMENT_KEYS and not self._argued:
            self._argued = True
            yield from self._arguments(key)
        else:
            if key not in _SILENT_KEYS:
                self._calls.note(f"the key {key!r} was ignored")
            yield from self._json.value(_nowhere)

    def _name(self) -> Need[None]:
        if (yield from self._cursor.peek()) not in ('"', "'", ""):
            raise CallError("its name is not text")
        name = yield from self._string()
        if not name.strip():
            raise CallError("its name is empty")
        if self._known is not None and not self._known(name):
            raise NotACall(f"there is no tool {name!r}")
        self._named = True
        self._calls.announce(name)

    def _arguments(self, key: str) -> Need[None]:
        char = yield from self._cursor.peek()
        if key != self._arguments_key:
            self._calls.note(f"{key!r} was read as {self._arguments_key!r}")
        if char == "{":
            yield from self._json.value(self._calls.write)
        elif char in ('"', "'"):
            text = yield from self._string()
            self._calls.note("the arguments were JSON inside a string")
            self._calls.write(_object_in(text))
        else:
            parts: list[str] = []
            yield from self._json.value(parts.append)
            if "".join(parts) != "null":
                raise CallError("its arguments are no object")
            self._calls.write("{}")

    def _string(self) -> Need[str]:
        parts: list[str] = []
        yield from self._json.string(parts.append)
        return json.loads("".join(parts))


def read_calls(cursor: Cursor, calls: CallWriter, *, end: str) -> Need[None]:
    """Read objects, in a list or one after the other, up to and with the closing mark `end`.

    The opening mark was read already. An object that is no call fails by itself, and those around
    it stand. Where text follows that is neither a call nor the mark, the block is taken as closed.
    """
    outcome: CallError | None = None
    waiting = False  # a call's outcome is known, but not what belongs to its raw text
    listed = False

    def settle() -> None:
        nonlocal waiting
        if not waiting:
            return
        waiting = False
        if outcome is None:
            calls.parsed(cursor.cut())
        else:
            calls.failed(cursor.cut(), outcome)

    yield from cursor.spaces()
    if (yield from cursor.accept("[")):
        listed = True
        yield from cursor.spaces()
    first = yield from cursor.peek()
    if first != "{":
        yield from _no_call(cursor, calls, end=end)
        return
    while True:
        mark = cursor.offset
        yield from cursor.spaces()
        char = yield from cursor.peek()
        if char == ",":
            cursor.advance()
            yield from cursor.spaces()
            char = yield from cursor.peek()
            if char not in ("{", ""):
                calls.note("a comma after the last call was dropped")
        if char == "{":
            settle()
            waiting = True
            outcome = yield from _read_call(cursor, calls, end=end)
            if isinstance(outcome, NotACall) or (outcome is not None and outcome.cut):
                break
        elif char == "}":
            cursor.advance()
            calls.note("an extra closing brace was dropped")
        elif char == "]":
            cursor.advance()
            if not listed:
                calls.note("an extra closing bracket was dropped")
            listed = False
        elif (yield from cursor.accept(end)):
            break
        else:
            if cursor.cut_short(end):
                cursor.advance(len(cursor.unread))
            elif char:
                cursor.back_to(mark)
            calls.note(f"{end} is missing")
            break
    settle()


def _read_call(cursor: Cursor, calls: CallWriter, *, end: str) -> Need[CallError | None]:
    """Read one object and return why it is no call, if it is none, with all its text read."""
    begin = cursor.offset
    call = CallObject(cursor, calls, end=end)
    try:
        yield from call.read()
    except CallError as error:
        if error.cut:
            return error
        if call.depth and not call.keys:
            return NotACall(f"{error.reason}, where a call's key should be")
        if call.depth:
            yield from skip_object(cursor, depth=call.depth, end=end, begin=begin)
        return error
    return None


def skip_object(
    cursor: Cursor, *, depth: int, end: str | None = None, begin: int = 0
) -> Need[None]:
    """Read to where an object ends that cannot be read, or the block does.

    Nothing inside strings is safe to rely on any more: a string that was never closed swallows
    `end`. So the first `end` since `begin`, wherever it stands, is taken for the real one.

    Args:
        cursor: where the object turned out to be none.
        depth: how many brackets are open there.
        end: the text that closes the block, if there is one.
        begin: where the object began, since the last cut.
    """
    swallowed = -1 if end is None else cursor.raw.find(end, begin)
    if swallowed >= 0:
        cursor.back_to(swallowed)
        return
    in_string = False
    while True:
        cursor.run(_DULL)
        char = yield from cursor.peek()
        if char == "" or (end is not None and (yield from cursor.looking_at(end))):
            return
        if _DULL.match(char):
            continue
        cursor.advance()
        if char == "\\":
            if (yield from cursor.peek()) not in ("", "<"):
                cursor.advance()
        elif char == '"':
            in_string = not in_string
        elif char in "{[" and not in_string:
            depth += 1
        elif char in "}]" and not in_string:
            depth -= 1
            if depth == 0:
                return


def _no_call(cursor: Cursor, calls: CallWriter, *, end: str) -> Need[None]:
    """A block that begins with no object: an empty one, or the mark was ordinary text."""
    mark = cursor.offset
    if (yield from cursor.accept("]")):
        yield from cursor.spaces()
    if (yield from cursor.accept(end)):
        calls.failed(cursor.cut(), CallError("it holds no call"))
    elif cursor.cut_short(end) or (yield from cursor.peek()) == "":
        cursor.advance(len(cursor.unread))
        calls.failed(cursor.cut(), CallError(CUT, cut=True))
    else:
        cursor.back_to(mark)
        calls.failed(cursor.cut(), NotACall("no JSON object follows"))


def _object_in(text: str) -> str:
    """The JSON object that `text` holds, written strictly."""
    if not text.strip():
        return "{}"
    try:
        value, _ = parse(text)
    except CallError as error:
        raise CallError(f"its arguments are text that is no JSON object: {error.reason}") from None
    if not isinstance(value, dict):
        raise CallError("its arguments are text that is no JSON object")
    return json.dumps(value, ensure_ascii=False)


def _nowhere(text: str) -> None:
    """Drop a value that is only read over."""
