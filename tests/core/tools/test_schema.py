"""Raw text gets the type that a tool's schema asks for, and is never lost to one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.tools.schema import ANY, Allowed, ParameterTypes


def typed(schema: object, text: str) -> object:
    return ParameterTypes({"properties": {"k": schema}}).of("k").read(text)[0]


def same(value: object, expected: object) -> bool:
    return type(value) is type(expected) and value == expected


TABLE = [
    ({"type": "string"}, "02134", "02134"),
    ({"type": "string"}, "1e5", "1e5"),
    ({"type": "string"}, "true", "true"),
    ({"type": "string"}, "null", "null"),
    ({"type": "string"}, ' {"a": 1} ', ' {"a": 1} '),
    ({"type": "integer"}, "7", 7),
    ({"type": "integer"}, " -7\n", -7),
    ({"type": "integer"}, "5.0", 5),
    ({"type": "integer"}, "1e3", 1000),
    ({"type": "integer"}, "2026-01-15", "2026-01-15"),
    ({"type": "integer"}, "5.5", "5.5"),
    ({"type": "integer"}, "inf", "inf"),
    ({"type": "integer"}, "9" * 5000, "9" * 5000),
    ({"type": "number"}, "1e3", 1000.0),
    ({"type": "number"}, "3", 3),
    ({"type": "number"}, "-.5", -0.5),
    ({"type": "number"}, "1e999", "1e999"),
    ({"type": "number"}, "nan", "nan"),
    ({"type": "boolean"}, "True", True),
    ({"type": "boolean"}, "false", False),
    ({"type": "boolean"}, "yes", "yes"),
    ({"type": "null"}, "None", None),
    ({"type": "object"}, '{"k": [1, {"t": "x<y>"}]}', {"k": [1, {"t": "x<y>"}]}),
    ({"type": "object"}, "{'k': 'v'}", {"k": "v"}),
    ({"type": "object"}, "{1: 'v'}", {"1": "v"}),
    ({"type": "object"}, '{"a": "x\ny"}', {"a": "x\ny"}),
    ({"type": "object"}, "for f in *; do echo {$f}; done", "for f in *; do echo {$f}; done"),
    ({"type": "object"}, "[1]", "[1]"),
    ({"type": "array"}, "[1,2,'x']", [1, 2, "x"]),
    ({"type": "array"}, "(1, None)", [1, None]),
    ({"type": ["string", "null"]}, "123", "123"),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "None", None),
    ({"type": ["string", "integer"]}, "5", 5),
    ({"type": ["string", "integer"]}, "5.0", 5),
    ({"type": ["string", "integer"]}, "5 apples", "5 apples"),
    ({"type": ["string", "array"]}, '["a"]', ["a"]),
    ({"type": ["string", "number"]}, "1e999", "1e999"),
    ({"type": "string", "nullable": True}, "null", None),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
    ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
    ({"anyOf": [{"type": "string"}, {}]}, "5", "5"),
    ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, "5", 5),
    ({"enum": [1, 2, "auto"]}, "2", 2),
    ({"enum": [1, 2, "auto"]}, "auto", "auto"),
    ({"enum": ["1", "2"]}, "1", "1"),
    ({"const": True}, "true", True),
    ({"type": "integer", "enum": [1, 2]}, "3", 3),
    ({"properties": {"a": {}}}, '{"a": 1}', {"a": 1}),
    ({"items": {}}, "[1]", [1]),
    ({}, "5", "5"),
    ({}, '{"a": 1}', {"a": 1}),
    ({}, "[not json", "[not json"),
    ({"type": "any"}, "true", "true"),
    (True, "5", "5"),
    ("nonsense", "5", "5"),
]


@pytest.mark.parametrize(("schema", "text", "expected"), TABLE)
def test_bugs_29_and_30_the_schema_decides_what_a_text_is(
    schema: object, text: str, expected: object
) -> None:
    value = typed(schema, text)
    assert same(value, expected), value


@pytest.mark.parametrize(
    ("schema", "text"), [({"type": "integer"}, "2026-01-15"), ({"type": "object"}, "echo {}{")]
)
def test_a_text_of_the_wrong_type_is_kept_with_a_note(schema: object, text: str) -> None:
    value, notes = ParameterTypes({"properties": {"k": schema}}).of("k").read(text)
    assert value == text
    assert notes


def test_references_are_followed_and_may_go_in_circles() -> None:
    types = ParameterTypes(
        {
            "$defs": {"age": {"type": "integer"}, "loop": {"anyOf": [{"$ref": "#/$defs/loop"}]}},
            "properties": {
                "a": {"$ref": "#/$defs/age"},
                "b": {"anyOf": [{"$ref": "#/$defs/age"}, {"type": "null"}]},
                "c": {"$ref": "#/$defs/loop"},
                "d": {"$ref": "#/$defs/missing"},
                "e": {"$ref": "https://example.org/schema"},
            },
        }
    )
    assert types.of("a").read("5") == (5, ())
    assert types.of("b").read("null") == (None, ())
    assert [types.of(key).read("5") for key in "cde"] == [("5", ())] * 3


def test_parameters_are_found_through_the_parts_of_a_schema() -> None:
    part = {"properties": {"a": {"type": "integer"}}}
    types = ParameterTypes(
        {
            "definitions": {"part": part},
            "allOf": [{"$ref": "#/definitions/part"}],
            "additionalProperties": {"type": "boolean"},
        }
    )
    assert types.of("a").read("5") == (5, ())
    assert types.of("other").read("true") == (True, ())


def test_only_plain_strings_may_be_handed_on_before_their_end() -> None:
    types = ParameterTypes({"properties": {"a": {"type": "string"}, "b": {"enum": ["x", "y"]}}})
    assert types.of("a").only_text
    assert types.of("b").only_text
    assert not ANY.only_text
    assert not Allowed(frozenset({"string", "null"})).only_text


def test_a_guess_takes_any_json_where_nothing_is_said() -> None:
    assert ANY.read("5", guess=True) == (5, ())
    assert ANY.read("02134", guess=True) == ("02134", ())
    assert ANY.read('"a"', guess=True) == ('"a"', ())
    assert ANY.read("a b", guess=True) == ("a b", ())


SCALARS = st.sampled_from(
    ["string", "integer", "number", "boolean", "null", "object", "array", "any", 5, None]
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {}, optional={"type": SCALARS | st.lists(SCALARS), "enum": st.lists(st.integers())}
    ),
    lambda inner: st.fixed_dictionaries(
        {"anyOf": st.lists(inner, max_size=3)},
        optional={
            "allOf": st.lists(inner, max_size=2),
            "$ref": st.sampled_from(["#", "#/x", "#a"]),
        },
    ),
    max_leaves=5,
)
VALUES = st.text() | st.from_regex(r"[-+.eE0-9]{1,8}") | st.text("[]{}\"',:1a", max_size=12)


@given(SCHEMAS, VALUES)
def test_no_schema_and_no_text_raises_or_gives_what_json_lacks(schema: object, text: str) -> None:
    value = typed(schema, text)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
