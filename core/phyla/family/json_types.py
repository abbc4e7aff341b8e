"""JSON's types held against those that a key may have: pydantic alone takes "8" and true for 8."""

from __future__ import annotations

import types
from typing import Annotated, Any, Union, cast, get_args, get_origin

_ONE = {int: "an integer", float: "a number", bool: "true or false"}
_SEVERAL = {"an integer": "integers", "a number": "numbers", "true or false": "true and false"}


def mistyped(value: object, annotation: object) -> str | None:
    """What a value should be, if its JSON type is none that the key may have; else None.

    Text is neither a number nor true, true is no number, and so for what a list holds. All else is
    for pydantic to refuse: of the numbers it takes whole ones for integers, 8.0 too.

    Args:
        value: what config.json has.
        annotation: the type that the key is declared with.
    """
    kinds = [kind for kind in _alternatives(annotation) if kind is not types.NoneType]
    if isinstance(value, list | tuple):
        items = cast("list[Any] | tuple[Any, ...]", value)
        texts = [_mistyped_items(items, kind) for kind in kinds]
        return texts[0] if texts and None not in texts else None
    if isinstance(value, bool):
        refused: tuple[object, ...] = (int, float)
    elif isinstance(value, str):
        refused = (int, float, bool)
    else:
        return None
    if not kinds or any(kind not in refused for kind in kinds):
        return None
    return _ONE[_widest(kinds)]


def _mistyped_items(values: list[Any] | tuple[Any, ...], kind: object) -> str | None:
    if get_origin(kind) not in (tuple, list):
        return None
    first, *others = get_args(kind)
    fixed = get_origin(kind) is tuple and others != [Ellipsis]
    items = (first, *others) if fixed else (first,) * len(values)
    for value, item in zip(values, items, strict=False):  # pydantic counts them
        wanted = mistyped(value, item)
        if wanted is not None:
            return f"a list of {_SEVERAL.get(wanted, 'lists')}"
    return None


def _alternatives(annotation: object) -> list[Any]:
    """The members of a union, without what `Annotated` adds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for each in get_args(annotation) for kind in _alternatives(each)]
    return [annotation]


def _widest(kinds: list[Any]) -> type:
    return next(kind for kind in (float, int, bool) if kind in kinds)
