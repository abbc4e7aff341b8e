"""Gives raw text the type that a tool's JSON schema asks for.

Some formats write every value as bare text: what `5` is, only the schema can say. A value that does
not fit stays text, with a note: a call is never lost to a type.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from phyla.tools.calls import CallError
from phyla.tools.json_text import MAX_DIGITS, parse, parse_strict
from phyla.tools.literals import Literal, read_literal

_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


# The schemas around one, by identity: one that refers to itself ends there.
_Above: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Allowed:
    """What a schema allows a value to be.

    Attributes:
        types: JSON type names; empty when the schema does not say.
        members: the values of `enum` and `const`; empty when there are none.
    """

    types: frozenset[str] = frozenset()
    members: tuple[object, ...] = ()

    @property
    def only_text(self) -> bool:
        """Whether every text is its own value, so that it can be handed on before its end."""
        return self.types == {"string"} and all(isinstance(item, str) for item in self.members)

    def read(self, text: str, *, guess: bool = False) -> tuple[object, tuple[str, ...]]:
        """The value that `text` stands for, and what did not fit or was repaired.

        Args:
            text: the raw text.
            guess: where the schema does not say, take any JSON for what it is, and not only
                objects and lists.
        """
        if self.only_text:
            return text, ()
        for member in self.members:
            if text == member or (not isinstance(member, str) and text.strip() == _shown(member)):
                return member, ()
        if not self.types:
            return _untyped(text, guess=guess)
        if "null" in self.types and text.strip() in ("null", "None"):
            return None, ()
        if "string" in self.types:
            return self._text_or_json(text), ()
        for read in (self._boolean, self._integer, self._number, self._structure):
            if (found := read(text)) is not None:
                return found
        return text, (f"{_short(text)} is not of type {' or '.join(sorted(self.types))}",)

    def _text_or_json(self, text: str) -> object:
        try:
            value = parse_strict(text)
        except CallError:
            return text
        if isinstance(value, str) or not self.types & _types_of(value):
            return text
        if isinstance(value, float) and "number" not in self.types:
            return int(value)
        return value

    def _boolean(self, text: str) -> tuple[object, tuple[str, ...]] | None:
        word = text.strip().lower()
        if "boolean" in self.types and word in ("true", "false"):
            return word == "true", ()
        return None

    def _integer(self, text: str) -> tuple[object, tuple[str, ...]] | None:
        text = text.strip()
        if not self.types & {"integer", "number"} or len(text) > MAX_DIGITS:
            return None
        if _INTEGER.fullmatch(text):
            return int(text), ()
        if "integer" in self.types and _NUMBER.fullmatch(text):
            value = float(text)
            if math.isfinite(value) and value.is_integer():
                return int(value), ()
        return None

    def _number(self, text: str) -> tuple[object, tuple[str, ...]] | None:
        text = text.strip()
        if "number" in self.types and len(text) <= MAX_DIGITS and _NUMBER.fullmatch(text):
            value = float(text)
            if math.isfinite(value):
                return value, ()
        return None

    def _structure(self, text: str) -> tuple[object, tuple[str, ...]] | None:
        if not self.types & {"object", "array"}:
            return None
        try:
            value, notes = parse(text)
        except CallError:
            literal = read_literal(text)
            if not isinstance(literal, Literal) or text[literal.end :].strip():
                return None
            value, notes = literal.value, ("it was read as a Python literal", *literal.notes)
        return (value, notes) if self.types & _types_of(value) else None


ANY = Allowed()


class ParameterTypes:
    """What the JSON schema of a tool's parameters allows for each of them."""

    def __init__(self, schema: Mapping[str, object] | None) -> None:
        """Read `schema`; None, or one that is no valid schema, allows anything."""
        self._root: Mapping[str, object] = schema or {}

    def of(self, key: str) -> Allowed:
        """What the parameter `key` may be."""
        for schema in self._parts(self._root):
            properties = schema.get("properties")
            if isinstance(properties, Mapping) and key in properties:
                return self._allowed(properties[key])
        for schema in self._parts(self._root):
            if isinstance(schema.get("additionalProperties"), Mapping):
                return self._allowed(schema["additionalProperties"])
        return ANY

    def _parts(self, schema: object, above: _Above = ()) -> Iterator[Mapping[str, object]]:
        """The schema and all that it is made of."""
        if not isinstance(schema, Mapping) or id(schema) in above:
            return
        yield schema
        above = (*above, id(schema))
        yield from self._parts(self._target(schema), above)
        for word in ("allOf", "anyOf", "oneOf"):
            for part in _list(schema.get(word)):
                yield from self._parts(part, above)

    def _target(self, schema: Mapping[str, object]) -> object:
        """What `$ref` points to, inside this schema; None without one."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: object = self._root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        return found

    def _allowed(self, schema: object, above: _Above = ()) -> Allowed:
        if not isinstance(schema, Mapping) or id(schema) in above:
            return ANY
        above = (*above, id(schema))
        target = self._target(schema)
        allowed = _own(schema)
        if target is not None:
            allowed = _both(allowed, self._allowed(target, above))
        for part in _list(schema.get("allOf")):
            allowed = _both(allowed, self._allowed(part, above))
        for word in ("anyOf", "oneOf"):
            if parts := _list(schema.get(word)):
                choices = [self._allowed(part, above) for part in parts]
                allowed = _both(allowed, _either(choices))
        if schema.get("nullable") is True and allowed.types:
            allowed = Allowed(allowed.types | {"null"}, allowed.members)
        return allowed


def _own(schema: Mapping[str, object]) -> Allowed:
    """What the schema says itself, without what it refers to."""
    kind = schema.get("type")
    names = [kind] if isinstance(kind, str) else _list(kind)
    types = frozenset(name for name in names if isinstance(name, str)) & _TYPES
    members = tuple(_list(schema.get("enum"))) or ((schema["const"],) if "const" in schema else ())
    if not types:
        types = frozenset(name for item in members for name in sorted(_types_of(item))[:1])
    if not types and "properties" in schema:
        types = frozenset({"object"})
    if not types and "items" in schema:
        types = frozenset({"array"})
    return Allowed(types, members)


def _both(one: Allowed, other: Allowed) -> Allowed:
    types = one.types & other.types if one.types and other.types else one.types | other.types
    return Allowed(types or one.types, one.members or other.members)


def _either(choices: list[Allowed]) -> Allowed:
    if not all(choice.types for choice in choices):
        return ANY
    types = frozenset(name for choice in choices for name in choice.types)
    return Allowed(types, tuple(item for choice in choices for item in choice.members))


def _types_of(value: object) -> frozenset[str]:
    """The JSON types that `value` is of."""
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"integer", "number"} if value.is_integer() else {"number"})
        case str():
            return frozenset({"string"})
        case Mapping():
            return frozenset({"object"})
        case _:
            return frozenset({"array"})


def _untyped(text: str, *, guess: bool) -> tuple[object, tuple[str, ...]]:
    if not guess and text.lstrip()[:1] not in ("{", "["):
        return text, ()
    try:
        value, notes = parse(text)
    except CallError:
        return text, ()
    return (text, ()) if isinstance(value, str) else (value, notes)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _shown(member: object) -> str:
    return json.dumps(member, ensure_ascii=False)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
