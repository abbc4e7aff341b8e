"""What transformers computed for the tiny configs, kept in files: see scripts/make_golden.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phyla.testing import CHATML, Forward, prompt_ids, random_tensor, write_files
from phyla.testing.forward import TOLERANCE

FILES = sorted(Path(__file__).with_name("golden").glob("*.json"))


@dataclass(frozen=True)
class Golden:
    """One branch of a golden file."""

    prompt: list[int]
    positions: list[int]
    columns: list[int]
    branch: dict[str, Any]


def goldens() -> list[Any]:
    cases: list[Any] = []
    for path in FILES:
        content = json.loads(path.read_text(encoding="utf-8"))
        for name, branch in content["branches"].items():
            prompt = prompt_ids(content["prompt_length"], seed=branch["prompt_seed"])
            case = Golden(prompt, content["positions"], content["columns"], branch)
            cases.append(pytest.param(case, id=f"{path.stem}: {name}"))
    return cases


@pytest.fixture(params=goldens())
def golden(request: pytest.FixtureRequest) -> Golden:
    return request.param


@pytest.fixture
def forward(golden: Golden, tmp_path: Path) -> Forward:
    import mlx.core as mx

    branch = golden.branch
    tensors = {
        name: mx.array(random_tensor(name, tuple(shape)))
        for name, shape in branch["shapes"].items()
    }
    template = branch.get("chat_template", CHATML)
    return Forward(write_files(tmp_path, branch["config"], tensors, chat_template=template))


def test_logits_and_greedy_tokens_are_the_references(golden: Golden, forward: Forward) -> None:
    branch = golden.branch
    for chunk in (None, 7):
        logits = forward.logits(golden.prompt, chunk=chunk)
        found = logits[golden.positions][:, golden.columns]
        np.testing.assert_allclose(
            found, np.array(branch["logits"]), rtol=0, atol=TOLERANCE * branch["range"]
        )
    assert forward.greedy(golden.prompt, len(branch["tokens"])) == branch["tokens"]


def test_every_family_with_tiny_configs_has_all_of_them_in_a_golden_file() -> None:
    tables = sorted(Path(__file__).parent.glob("*/tiny.json"))
    named = {
        path.parent.name: {
            name for group in json.loads(path.read_text()) for name in group["branches"]
        }
        for path in tables
    }
    kept = {path.stem: set(json.loads(path.read_text())["branches"]) for path in FILES}
    assert kept == named
