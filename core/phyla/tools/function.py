"""Describes a Python function as a tool: its name, its docstring, and a JSON schema of its types.

Knows type hints and the three common ways of writing docstrings. Knows no template.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import typing
from typing import TYPE_CHECKING, Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError

from phyla.errors import RequestError
from phyla.messages import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from inspect import Parameter

_GOOGLE_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns?|Raises|Yields?|Examples?|Notes?|Attributes|"
    r"Warnings?|References|See Also|Todo):[ \t]*$"
)
_GOOGLE_ARGUMENTS = frozenset({"Args", "Arguments", "Parameters", "Params"})
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)[ \t]*(?:\([^)]*\))?:[ \t]*(.*)")
_NUMPY_SECTION = re.compile(r"(\w[\w ]*)\n-{3,}[ \t]*$", re.MULTILINE)
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:[ \t]*,[ \t]*\w+)*)[ \t]*(?::.*)?$")
_SPHINX_FIELD = re.compile(r"^:(\w+)[ \t]*([^:]*):[ \t]*", re.MULTILINE)
_SPHINX_PARAMETER = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


def tool_from_function(function: Callable[..., Any]) -> Tool:
    """Describe a function, so that a model can call it.

    The parameters' types become a JSON schema by pydantic's rules, with its references replaced by
    what they refer to. Descriptions come from `Annotated[..., Field(description=...)]`, else from
    the docstring (Google, NumPy or Sphinx style). A parameter with a default is not required.

    Raises:
        RequestError: a parameter has no type, a type that no JSON schema describes, or no name of
            its own; or the function has no name.
    """
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise RequestError(
            f"{function!r} cannot be a tool: it has no name.",
            field="tools",
            expected="a named function",
            found=function,
            hint="Define it with def, or pass a phyla.Tool.",
        )
    hints = _hints(function, name)
    description, texts = read_docstring(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        schema = _schema(name, parameter, hints)
        if parameter.name in texts:
            schema.setdefault("description", texts[parameter.name])
        properties[parameter.name] = schema
        if parameter.default is parameter.empty and "default" not in schema:
            required.append(parameter.name)
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return Tool(name=name, description=description, parameters=parameters)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise RequestError(
            f"The type hints of {name} cannot be read: {error}.",
            field=name,
            hint="Make the types available in the function's module.",
        ) from error


def _schema(function: str, parameter: Parameter, hints: Mapping[str, Any]) -> dict[str, Any]:
    field = f"{function}.{parameter.name}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise RequestError(
            f"{field}: a model cannot be told of {parameter}; each argument needs a name.",
            field=field,
            found=str(parameter),
            hint="List the parameters one by one.",
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise RequestError(
            f"{field} can only be given by its place, and models give arguments by name.",
            field=field,
            found=str(parameter),
            hint="Drop the '/' from the signature.",
        )
    if parameter.name not in hints:
        raise RequestError(
            f"{field} has no type.",
            field=field,
            expected="a type hint",
            hint=f"Annotate it, for example `{parameter.name}: str`; typing.Any takes anything.",
        )
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hints[parameter.name])
        schema = adapter.json_schema()
    # PydanticInvalidForJsonSchema is a PydanticUserError.
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise RequestError(
            f"{field}: no JSON schema describes the type {hints[parameter.name]!r}: {_said(error)}",
            field=field,
            found=hints[parameter.name],
            hint="Use plain types, lists, dictionaries, enums, dataclasses or pydantic models.",
        ) from error
    definitions = schema.pop("$defs", {})
    schema = _plain(schema, definitions, field, ())
    if parameter.default is parameter.empty:
        return schema
    if parameter.default is None:
        return _without_null(schema)
    # A default that JSON cannot show is still a default: the parameter is not required.
    with contextlib.suppress(PydanticSerializationError):
        schema["default"] = adapter.dump_python(parameter.default, mode="json", warnings=False)
    return schema


def _said(error: Exception) -> str:
    """The first line of what pydantic says."""
    return str(error).strip().splitlines()[0].rstrip(".") + "."


def _plain(schema: Any, definitions: Mapping[str, Any], field: str, inside: tuple[str, ...]) -> Any:
    """The schema without titles and references, which chat templates do not follow."""
    if isinstance(schema, list):
        return [_plain(item, definitions, field, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        key = reference.rpartition("/")[2]
        if key in inside:
            raise RequestError(
                f"{field}: the type {key} contains itself, which no tool's schema can show.",
                field=field,
                hint="Take a dict instead.",
            )
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        return {
            **_plain(definitions[key], definitions, field, (*inside, key)),
            **_plain(rest, definitions, field, inside),
        }
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            # The keys here are names, and `title` is a good one.
            plain[key] = {k: _plain(v, definitions, field, inside) for k, v in value.items()}
        elif key in {"default", "enum", "const", "examples"}:
            plain[key] = value
        elif key not in {"title", "$defs"}:
            plain[key] = _plain(value, definitions, field, inside)
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    return _with_type_list(plain)


def _with_type_list(schema: dict[str, Any]) -> dict[str, Any]:
    """`anyOf` of a type and null as one schema with two types, which more templates can show."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list) or len(choices) != 2 or {"type": "null"} not in choices:
        return schema
    other = next((choice for choice in choices if choice != {"type": "null"}), None)
    if not isinstance(other, dict) or not isinstance(other.get("type"), str):
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    merged = {**other, "type": [other["type"], "null"], **rest}
    if "enum" in merged:
        merged["enum"] = [*merged["enum"], None]
    return merged


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of what may be given; to leave it out says the same as null."""
    kinds = schema.get("type")
    if not isinstance(kinds, list) or "null" not in kinds:
        return schema
    kinds = [kind for kind in kinds if kind != "null"]
    schema = {**schema, "type": kinds[0] if len(kinds) == 1 else kinds}
    if "enum" in schema:
        schema["enum"] = [member for member in schema["enum"] if member is not None]
    return schema


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's description, and what it says of each parameter.

    Args:
        text: the docstring, without its indentation.
    """
    if _SPHINX_FIELD.search(text):
        return _sphinx(text)
    if _NUMPY_SECTION.search(text):
        return _numpy(text)
    return _google(text)


def _sphinx(text: str) -> tuple[str, dict[str, str]]:
    fields = list(_SPHINX_FIELD.finditer(text))
    texts: dict[str, str] = {}
    ends = [field.start() for field in fields[1:]] + [len(text)]
    for field, end in zip(fields, ends, strict=True):
        words = field[2].split()
        if field[1] in _SPHINX_PARAMETER and words:
            texts[words[-1].lstrip("*")] = _joined(text[field.end() : end])
    return text[: fields[0].start()].strip(), texts


def _numpy(text: str) -> tuple[str, dict[str, str]]:
    sections = list(_NUMPY_SECTION.finditer(text))
    texts: dict[str, str] = {}
    ends = [section.start() for section in sections[1:]] + [len(text)]
    for section, end in zip(sections, ends, strict=True):
        if section[1] not in {"Parameters", "Other Parameters"}:
            continue
        names: list[str] = []
        lines: dict[str, list[str]] = {}
        for line in text[section.end() : end].splitlines():
            entry = _NUMPY_ENTRY.match(line)
            if entry and not line[:1].isspace():
                names = [name.strip() for name in entry[1].split(",")]
            elif line.strip():
                for name in names:
                    lines.setdefault(name, []).append(line)
        texts |= {name: _joined("\n".join(found)) for name, found in lines.items()}
    return text[: sections[0].start()].strip(), texts


def _google(text: str) -> tuple[str, dict[str, str]]:
    description: list[str] = []
    lines: dict[str, list[str]] = {}
    section: str | None = None
    name: str | None = None
    indent = 0
    for line in text.splitlines():
        heading = _GOOGLE_SECTION.fullmatch(line)
        if heading:
            section, name, indent = heading[1], None, 0
        elif section is None:
            description.append(line)
        elif line[:1].strip():
            section = None  # text at the margin ends a section
            description.append(line)
        elif section in _GOOGLE_ARGUMENTS and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            entry = _GOOGLE_ENTRY.match(line.strip())
            if entry and depth <= indent:
                name = entry[1]
                lines[entry[1]] = [entry[2]]
            elif name is not None:
                lines[name].append(line)
    texts = {name: _joined("\n".join(found)) for name, found in lines.items()}
    return "\n".join(description).strip(), texts


def _joined(text: str) -> str:
    return " ".join(text.split())
