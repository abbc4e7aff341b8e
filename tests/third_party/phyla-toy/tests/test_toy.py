from __future__ import annotations

from pathlib import Path

import pytest

from phyla.errors import ConfigError
from phyla.registry import discover, make_registry
from phyla.testing import Conformance, read_tiny, subjects
from phyla_toy import plugin
from phyla_toy.config import Config

TINY = read_tiny(Path(__file__).with_name("tiny.json"))

subject = subjects(TINY)


class TestConformance(Conformance):
    pass


def test_the_installed_package_is_found_with_its_version():
    (known,) = [known for known in discover().families if known.distribution == "phyla-toy"]
    assert (known.family.name, known.version) == ("toy", "0.1.0")


def test_the_plugin_keeps_its_contract():
    registry = make_registry(modules=[plugin])
    assert registry.broken == ()
    assert [known.family for known in registry.families] == [plugin.TOY]


def test_each_spelling_of_a_key_is_read():
    assert Config.read(TINY["other spelling"].config).num_heads == 3


def test_a_wrong_key_is_named():
    with pytest.raises(ConfigError) as failure:
        Config.read({**TINY["plain"].config, "head_dim": 0})
    assert failure.value.key == "head_dim"
