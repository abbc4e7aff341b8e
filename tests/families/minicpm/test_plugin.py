"""MiniCPM is told from other checkpoints by names that a broken config may hold anything in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phyla_families.minicpm.plugin import is_minicpm


@pytest.mark.parametrize(
    ("architectures", "found"),
    [
        (["MiniCPMForCausalLM"], True),
        (["LlamaForCausalLM"], False),
        (None, False),
        (5, False),
        (True, False),
        ([5, None], False),
        ({"MiniCPMForCausalLM": 1}, False),
    ],
)
def test_architectures_of_any_type_are_looked_at_without_an_error(
    architectures: Any, found: bool
) -> None:
    checkpoint: Any = SimpleNamespace(config={"architectures": architectures}, model_type=None)
    assert is_minicpm(checkpoint) is found
