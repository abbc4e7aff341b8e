"""Token ids from a caller: only integers, and only those of the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from phyla.errors import EmptyInputError, RequestError
from phyla.prompt import Prompt, read_ids


@pytest.mark.parametrize(
    "ids", [[1, 2], (1, 2), np.array([1, 2]), [np.int32(1), np.uint8(2)], iter([1, 2])]
)
def test_integers_of_any_kind_become_pythons_own(ids):
    prompt = read_ids(ids, 10)
    assert prompt.ids == (1, 2)
    assert [type(token) for token in prompt.ids] == [int, int]


@pytest.mark.parametrize("wrong", [True, 1.5, 1.0, "a", None, np.float32(1), np.bool_(True), [1]])
def test_what_is_no_integer_is_named_by_its_place(wrong):
    with pytest.raises(RequestError, match="integers") as failure:
        read_ids([0, wrong], 10)
    assert failure.value.field == "ids[1]"
    with pytest.raises(RequestError, match="integers"):
        Prompt(ids=(0, wrong))


@pytest.mark.parametrize("wrong", [5, None, "a"])
def test_what_is_no_list_of_ids_is_the_requests_fault(wrong):
    with pytest.raises(RequestError, match="integers"):
        read_ids(wrong, 10)


def test_a_prompt_is_checked_against_the_vocabulary_too():
    assert read_ids(Prompt(ids=(9,), text="x"), 10) == Prompt(ids=(9,), text="x")
    for token in (10, -1):
        with pytest.raises(RequestError, match="outside the vocabulary") as failure:
            read_ids(Prompt(ids=(0, token)), 10)
        assert failure.value.field == "ids[1]"
    with pytest.raises(EmptyInputError):
        read_ids(Prompt(ids=()), 10)
