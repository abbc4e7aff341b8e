"""The engines that the tests of sessions share."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.core.engine.session.sessions import CONFIGS, LLAMA, make
from tests.core.engine.session.talking import QWEN3_LIKE, Talking

from phyla.testing import ScriptedEngine
from phyla.testing.thorough import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    import phyla


@pytest.fixture(scope="session", params=list(some(CONFIGS, count=len(CONFIGS), most=1)))
def every(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[phyla.Engine]:
    """An engine for each way in which layers remember."""
    with make(tmp_path_factory.mktemp("every") / "tiny", request.param) as engine:
        yield engine


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phyla.Engine]:
    with make(tmp_path_factory.mktemp("plain") / "tiny", "attention") as engine:
        yield engine


@pytest.fixture(params=[False, True], ids=["step by step", "ahead"])
def ahead(request: pytest.FixtureRequest) -> bool:
    """Whether the next step is started before the current token is seen."""
    return request.param


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    family = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module("phyla_families.qwen3.dialect").dialect
    folder = tmp_path_factory.mktemp("scripted") / "tiny"
    with ScriptedEngine(
        folder, {**LLAMA, "vocab_size": 288, "max_position_embeddings": 4096},
        replace(family, dialect=dialect), chat_template=QWEN3_LIKE,
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def talk(scripted: ScriptedEngine) -> Iterator[Talking]:
    talking = Talking(scripted)
    yield talking
    talking.session.close()
