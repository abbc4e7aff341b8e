"""A family from outside: installed by pip, it is found, run, refused when it clashes, and reported
when it is broken, with no change to the core.
"""

from __future__ import annotations

import json

import pytest

import phyla
from phyla.errors import CheckpointError, PluginError, UnsupportedModelError
from phyla.registry import discover

RIVAL = """
from phyla.family import Family, FamilyConfig
from phyla.hooks import hookimpl

def model(config):
    raise AssertionError("never built here")

@hookimpl
def phyla_provide_families():
    return [Family(name={name!r}, model_types=("toy",), config=FamilyConfig, model=model)]
"""

pytestmark = pytest.mark.usefixtures("toy_installed")


def listed() -> dict[str, tuple[str, str]]:
    return {row.name: (row.distribution, row.version) for row in discover().listing().families}


def test_an_installed_package_is_found_and_listed_beside_the_bundled_families():
    rows = listed()
    assert rows["toy"] == ("phyla-toy", "0.1.0")
    assert rows["llama"] == ("phyla", phyla.__version__)


def test_it_runs_and_generating_equals_recomputing(toy_checkpoint):
    prompt = [2, 5, 3]
    with phyla.load(toy_checkpoint) as engine:
        assert engine.family == "toy"
        reply = engine.generate(
            prompt, options={"temperature": 0, "max_tokens": 12, "ignore_eos": True}
        )
        logits = engine.trace([*prompt, *reply.tokens]).logits
    greedy = logits[len(prompt) - 1 : -1].argmax(axis=-1).tolist()
    assert list(reply.tokens) == greedy
    assert len(greedy) == 12


def test_its_config_errors_name_the_key(toy_checkpoint):
    config = json.loads((toy_checkpoint / "config.json").read_text())
    del config["head_dim"]
    (toy_checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError) as failure:
        phyla.load(toy_checkpoint)
    assert failure.value.field == "head_dim"


def test_a_second_package_with_its_name_is_refused_when_the_model_is_needed(site, toy_checkpoint):
    site.install_family("phyla-toy-rival", RIVAL.format(name="toy"), entry_point="rival")
    with pytest.raises(PluginError) as failure:
        phyla.load(toy_checkpoint)
    assert failure.value.distributions == ("phyla-toy", "phyla-toy-rival")
    clashes = {row.name for row in discover().listing().families if row.clash}
    assert clashes == {"toy"}


def test_a_second_package_with_its_model_type_is_refused_until_decided_by_hand(
    site, toy_checkpoint
):
    site.install_family("phyla-toy-rival", RIVAL.format(name="rival"), entry_point="rival")
    with pytest.raises(UnsupportedModelError) as failure:
        phyla.load(toy_checkpoint)
    assert failure.value.distributions == ("phyla-toy", "phyla-toy-rival")
    assert 'family="toy"' in str(failure.value)
    with phyla.load(toy_checkpoint, family="toy") as engine:
        assert engine.family == "toy"


def test_a_broken_package_is_reported_and_the_others_go_on(site, toy_checkpoint):
    site.install_family(
        "phyla-broken", "import a_module_that_is_not_there", entry_point="broken", version="0.3"
    )
    (broken,) = discover().listing().broken
    assert (broken.distribution, broken.version) == ("phyla-broken", "0.3")
    assert broken.reason == "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    with phyla.load(toy_checkpoint) as engine:
        assert engine.generate([2], options={"max_tokens": 1}).finish_reason in ("stop", "length")


def test_a_model_that_nobody_takes_names_what_is_close_and_what_is_broken(site, toy_checkpoint):
    config = json.loads((toy_checkpoint / "config.json").read_text())
    (toy_checkpoint / "config.json").write_text(json.dumps({**config, "model_type": "toy_large"}))
    site.install_family("phyla-broken", "import a_module_that_is_not_there", entry_point="broken")
    with pytest.raises(UnsupportedModelError) as failure:
        phyla.load(toy_checkpoint)
    assert "Model types close to it: toy." in str(failure.value)
    assert "broken of phyla-broken (ModuleNotFoundError" in str(failure.value)
