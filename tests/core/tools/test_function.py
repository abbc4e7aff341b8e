"""Tools made from Python functions."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from phyla.errors import RequestError
from phyla.messages import Tool, read_tools
from phyla.tools.function import tool_from_function


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Place(TypedDict):
    title: str
    at: Point


class Query(BaseModel):
    text: str = Field(description="what to look for")
    limit: int = 5


class Tree(BaseModel):
    children: list[Tree]


def schema_of(annotation: Any, **default: Any) -> dict[str, Any]:
    def take(value): ...

    take.__annotations__ = {"value": annotation}
    if default:
        take.__defaults__ = (default["default"],)
    return tool_from_function(take).parameters["properties"]["value"]


def test_a_function_becomes_a_tool():
    def get_weather(city: str, days: int = 3) -> str:
        """Tell the weather.

        It never rains here.

        Args:
            city: where,
                in any language
            days (int): how many: at most 7

        Returns:
            A sentence.
        """
        return f"{city} {days}"

    assert tool_from_function(get_weather) == Tool(
        name="get_weather",
        description="Tell the weather.\n\nIt never rains here.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where, in any language"},
                "days": {"type": "integer", "default": 3, "description": "how many: at most 7"},
            },
            "required": ["city"],
        },
    )


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Unit, {"type": "string", "enum": ["celsius", "fahrenheit"]}),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045
        (int | None, {"type": ["integer", "null"]}),
        (Optional[Literal["a", "b"]], {"type": ["string", "null"], "enum": ["a", "b", None]}),  # noqa: UP045
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (Annotated[int, Field(description="how many", ge=1)], None),
    ],
)
def test_types_become_schemas(annotation, schema):
    if schema is None:
        schema = {"type": "integer", "description": "how many", "minimum": 1}
    assert schema_of(annotation) == schema


def test_a_tuple_keeps_the_types_of_its_places():
    schema = schema_of(tuple[int, str])
    assert schema["prefixItems"] == [{"type": "integer"}, {"type": "string"}]


def test_classes_are_written_out():
    point = {
        "type": "object",
        "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
        "required": ["x"],
    }
    assert schema_of(Point) == point
    assert schema_of(Place) == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "at": point},
        "required": ["title", "at"],
    }
    assert schema_of(list[Query])["items"]["properties"] == {
        "text": {"type": "string", "description": "what to look for"},
        "limit": {"type": "integer", "default": 5},
    }


def test_a_default_that_is_none_is_left_out():
    assert schema_of(int | None, default=None) == {"type": "integer"}


def test_a_default_that_json_cannot_show_is_no_error():
    assert schema_of(Any, default=object()) == {}
    assert schema_of(Unit, default=Unit.C)["default"] == "celsius"


def test_numpy_docstrings_are_read():
    def f(a: int, b: int, c: int = 0):
        """Add.

        Parameters
        ----------
        a, b : int
            The terms,
            both.
        c
            One more.

        Returns
        -------
        int
            The sum.
        """

    tool = tool_from_function(f)
    described = {k: v["description"] for k, v in tool.parameters["properties"].items()}
    assert tool.description == "Add."
    assert described == {"a": "The terms, both.", "b": "The terms, both.", "c": "One more."}


def test_sphinx_docstrings_are_read():
    def f(a: int, b: str):
        """Add.

        :param a: the first
            of two
        :type a: int
        :param str b: the second
        :return: the sum
        """

    tool = tool_from_function(f)
    described = {k: v["description"] for k, v in tool.parameters["properties"].items()}
    assert tool.description == "Add."
    assert described == {"a": "the first of two", "b": "the second"}


def test_an_annotation_s_description_comes_before_the_docstring_s():
    def f(a: Annotated[int, Field(description="from the type")]):
        """Do.

        Args:
            a: from the text
        """

    properties = tool_from_function(f).parameters["properties"]
    assert properties["a"]["description"] == "from the type"


def test_a_function_without_parameters_or_docstring_is_a_tool():
    def now() -> str:
        return ""

    assert tool_from_function(now) == Tool(name="now")


def test_a_bound_method_is_a_tool_without_self():
    class Shop:
        async def buy(self, item: str) -> None: ...

    assert list(tool_from_function(Shop().buy).parameters["properties"]) == ["item"]


def untyped(a): ...
def many(*a: int): ...
def named(**a: int): ...
def placed(a: int, /): ...
def odd(a: functools.partial[Any]): ...
def recursive(a: Tree): ...
def unknown(a: Missing): ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize("function", [untyped, many, named, placed, odd, recursive, unknown])
def test_what_no_model_could_call_is_refused(function):
    with pytest.raises(RequestError) as caught:
        tool_from_function(function)
    assert str(caught.value.field).startswith(function.__name__)
    assert caught.value.hint


@pytest.mark.parametrize("function", [lambda: 0, functools.partial(untyped, 1)])
def test_a_tool_needs_a_name(function):
    with pytest.raises(RequestError, match="no name"):
        tool_from_function(function)


def test_functions_are_read_next_to_plain_tools():
    def f(a: int): ...

    tools = read_tools([f, {"name": "g"}, Tool(name="h")])
    assert [tool.name for tool in tools] == ["f", "g", "h"]


def test_what_is_no_tool_is_refused():
    with pytest.raises(RequestError, match=r"tools\[0\]"):
        read_tools([3])  # type: ignore[list-item]
