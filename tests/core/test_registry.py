"""Discovery, the plugin contract, and the choice of a family."""

from __future__ import annotations

import random
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.errors import PhylaError, PluginError, RequestError, UnsupportedModelError
from phyla.family import Family, FamilyConfig
from phyla.hooks import hookimpl
from phyla.options import Options
from phyla.registry import Registry, make_registry
from phyla.registry.likeness import alike
from phyla.registry.plugin import PLUGINS_GROUP, Plugin
from phyla.registry.selection import winners

if TYPE_CHECKING:
    from collections.abc import Callable


def family_source(
    name: str, *model_types: str, recognizes: str | None = None, extra: str = ""
) -> str:
    """A plugin module that brings one family; `recognizes` is an expression of `checkpoint`."""
    look = "None" if recognizes is None else f"lambda checkpoint: {recognizes}"
    return f"""
from phyla.family import Family, FamilyConfig
from phyla.hooks import hookimpl

def model(config):
    raise AssertionError("never built here")

{extra}

@hookimpl
def phyla_provide_families():
    return [
        Family(
            name={name!r},
            model_types={model_types!r},
            config=FamilyConfig,
            model=model,
            recognizes={look},
        )
    ]
"""


def registry(site: Any) -> Registry:
    """A registry of the site's packages, met in any order."""
    entries = site.entries
    random.Random(len(entries)).shuffle(entries)
    return make_registry(entries)


def build(config: object) -> Any:
    raise AssertionError("never built here")


def family(name: str = "toy", *model_types: str, **fields: Any) -> Family:
    given: dict[str, Any] = {
        "name": name,
        "model_types": model_types or ("toy",),
        "config": FamilyConfig,
        "model": build,
        **fields,
    }
    return Family(**given)


def plugin_bringing(*families: object) -> ModuleType:
    module = ModuleType("toy_plugin")

    @hookimpl
    def phyla_provide_families() -> Any:
        return list(families)

    module.phyla_provide_families = phyla_provide_families  # pyright: ignore[reportAttributeAccessIssue]
    return module


def only_failure(made: Registry) -> str:
    assert made.families == ()
    (broken,) = made.broken
    assert isinstance(broken.error, PluginError)
    assert broken.error.fault == "plugin"
    return broken.reason


# Discovery


def test_a_family_is_known_with_the_distribution_that_brings_it(site):
    site.install_family("phyla-toy", family_source("toy", "toy", "toy_moe"), version="2.1")
    (known,) = registry(site).families
    assert known.family.name == "toy"
    assert (known.distribution, known.version, known.entry_point) == ("phyla-toy", "2.1", "toy")


def test_nothing_is_imported_until_somebody_asks(site):
    site.install_family("phyla-toy", family_source("toy", "toy"))
    made = registry(site)
    assert "phyla_toy_plugin" not in sys.modules
    assert made.families
    assert "phyla_toy_plugin" in sys.modules


def test_the_command_line_asks_for_commands_without_importing_a_family(site):
    site.install_family("phyla-toy", family_source("toy", "toy"))
    site.install_family(
        "phyla-extra",
        "from phyla.hooks import hookimpl\n"
        "@hookimpl\ndef phyla_commands(app):\n    app.append('extra')\n",
        entry_point="extra",
        group="phyla.plugins",
    )
    app: Any = []
    assert registry(site).add_commands(app) == ()
    assert app == ["extra"]
    assert "phyla_toy_plugin" not in sys.modules


def test_bundled_families_come_in_by_the_same_entry_points():
    code = (
        "from phyla.registry import discover\n"
        "rows = discover().listing().families\n"
        "print(*sorted(row.name for row in rows if row.distribution == 'phyla'))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert {"llama", "minicpm", "qwen3"} <= set(out.split())


def test_the_listing_has_a_row_for_each_family_with_all_its_model_types():
    rows = make_registry(
        modules=[plugin_bringing(family("toy", "toy"), family("toy", "toy_moe", "toy"))]
    ).listing()
    (row,) = rows.families
    assert row.model_types == ("toy", "toy_moe")
    assert row.clash is None
    assert rows.broken == ()


# Broken plugins


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import a_module_that_is_not_there", "a_module_that_is_not_there"),
        ("raise RuntimeError('no licence\\n on this machine')", "no licence on this machine"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_plugin_that_does_not_import_is_kept_with_its_reason(site, checkpoint_of, source, reason):
    site.install_family("phyla-broken", source, entry_point="broken", version="0.3")
    site.install_family("phyla-toy", family_source("toy", "toy"))
    made = registry(site)
    assert made.family_for(checkpoint_of("toy")).name == "toy"
    (broken,) = made.listing().broken
    assert (broken.entry_point, broken.distribution, broken.version) == (
        "broken",
        "phyla-broken",
        "0.3",
    )
    assert reason in broken.reason
    with pytest.raises(UnsupportedModelError, match="phyla-broken") as failure:
        made.family_for(checkpoint_of("other"))
    assert reason in str(failure.value)


def test_asking_by_name_for_a_broken_plugin_says_why_it_is_broken(site, checkpoint_of):
    site.install_family("phyla-broken", "import a_module_that_is_not_there", entry_point="broken")
    with pytest.raises(PluginError, match="a_module_that_is_not_there") as failure:
        registry(site).family_for(checkpoint_of("toy"), "broken")
    assert failure.value.distributions == ("phyla-broken",)
    assert isinstance(failure.value.__cause__, ModuleNotFoundError)


def test_a_misspelt_hook_is_an_error_that_names_the_right_one(site):
    site.install_family(
        "phyla-toy",
        family_source("toy", "toy").replace("phyla_provide_families", "phyla_provide_family"),
    )
    reason = only_failure(registry(site))
    assert "phyla_provide_family" in reason
    assert "Did you mean phyla_provide_families?" in reason


def test_a_function_named_like_a_hook_without_its_marker_is_an_error(site):
    site.install_family(
        "phyla-toy",
        family_source("toy", "toy", extra="def phyla_observer():\n    return []\n"),
    )
    assert "'phyla_observer', which is no hook" in only_failure(registry(site))


def test_a_hook_without_its_marker_is_an_error(site):
    site.install_family("phyla-toy", family_source("toy", "toy").replace("@hookimpl", ""))
    assert "Add @hookimpl" in only_failure(registry(site))


def test_a_hook_with_an_argument_that_it_does_not_get_is_an_error(site):
    source = family_source("toy", "toy").replace("families():", "families(folder):")
    site.install_family("phyla-toy", source)
    assert "folder" in only_failure(registry(site))


def test_a_plugin_that_cannot_be_hashed_is_set_aside_alone():
    made = make_registry(modules=[SimpleNamespace(), plugin_bringing(family("toy", "toy"))])
    assert [known.family.name for known in made.families] == ["toy"]
    assert "can hash" in made.broken[0].reason


def test_a_families_entry_point_that_brings_no_family_is_an_error(site):
    site.install_family("phyla-toy", "VERSION = 1\n")
    assert "brings no family" in only_failure(registry(site))


def test_a_plugin_need_not_bring_a_family(site):
    site.install_family("phyla-extra", "VERSION = 1\n", group="phyla.plugins")
    assert registry(site).broken == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", 3),
        ("model_types", "toy"),
        ("model_types", ["toy"]),
        ("model_types", ()),
        ("model_types", ("toy", 3)),
        ("config", dict),
        ("config", FamilyConfig(vocab_size=3)),
        ("model", None),
        ("weights", ()),
        ("recognizes", True),
        ("dialect", "plain"),
    ],
)
def test_a_family_with_a_wrong_field_is_refused_by_name(field, value):
    reason = only_failure(make_registry(modules=[plugin_bringing(family(**{field: value}))]))
    assert f"whose {field} should be" in reason
    assert repr(value) in reason


@pytest.mark.parametrize("answer", ["toy", {"name": "toy"}, None])
def test_what_is_no_family_is_refused(answer):
    assert "for a family" in only_failure(make_registry(modules=[plugin_bringing(answer)]))


def test_a_hook_that_fails_or_returns_no_list_breaks_its_plugin_alone(site):
    site.install_family("phyla-toy", family_source("toy", "toy"))
    for number, body in enumerate(["raise KeyError('x')", "return 5", "yield 1"]):
        site.install_family(
            f"phyla-bad{number}",
            "from phyla.hooks import hookimpl\n"
            f"@hookimpl\ndef phyla_provide_families():\n    {body}\n",
            entry_point=f"bad{number}",
        )
    made = registry(site)
    assert [known.family.name for known in made.families] == ["toy"]
    assert [broken.entry_point for broken in made.broken] == ["bad0", "bad1", "bad2"]


# Clashes


@pytest.fixture
def two_of_one_name(site):
    site.install_family("phyla-toy", family_source("toy", "toy"))
    site.install_family("phyla-rival", family_source("toy", "rival"), entry_point="rival")
    return registry(site)


def test_two_plugins_with_one_family_name_are_refused_when_the_family_is_needed(
    two_of_one_name, checkpoint_of
):
    for model_type, name in [("toy", None), ("rival", None), ("toy", "toy"), ("other", "toy")]:
        with pytest.raises(PluginError, match=r"phyla-rival 1\.0 and phyla-toy 1\.0") as failure:
            two_of_one_name.family_for(checkpoint_of(model_type), name)
        assert failure.value.distributions == ("phyla-rival", "phyla-toy")


def test_a_clash_is_shown_in_the_listing_and_stops_no_other_family(site, checkpoint_of):
    site.install_family("phyla-toy", family_source("toy", "toy"))
    site.install_family("phyla-rival", family_source("toy", "rival"), entry_point="rival")
    site.install_family("phyla-calm", family_source("calm", "calm"), entry_point="calm")
    made = registry(site)
    clashes = {row.distribution: row.clash for row in made.listing().families}
    assert clashes["phyla-calm"] is None
    assert "phyla-rival 1.0 and phyla-toy 1.0" in str(clashes["phyla-toy"])
    assert clashes["phyla-toy"] == clashes["phyla-rival"]
    assert made.family_for(checkpoint_of("calm")).name == "calm"


def test_two_distributions_with_one_entry_point_name_are_refused(site, checkpoint_of):
    site.install_family("phyla-toy", family_source("toy", "toy"))
    site.install_family("phyla-rival", family_source("rival", "rival"))
    with pytest.raises(PluginError, match=r"phyla-rival 1\.0 and phyla-toy 1\.0"):
        registry(site).family_for(checkpoint_of("rival"))


def test_a_broken_plugin_of_the_same_name_does_not_stop_the_working_one(site, checkpoint_of):
    site.install_family("phyla-toy", family_source("toy", "toy"))
    site.install_family("phyla-rival", "import a_module_that_is_not_there")
    assert registry(site).family_for(checkpoint_of("toy"), "toy").name == "toy"


def test_one_module_named_by_two_entry_points_is_reported(site):
    site.install(
        "phyla-toy",
        modules={"phyla_toy_plugin": family_source("toy", "toy")},
        entry_points={"toy": "phyla_toy_plugin", "toy_again": "phyla_toy_plugin"},
    )
    made = registry(site)
    assert len(made.families) == 1
    assert "same module" in made.broken[0].reason


# Which family takes a checkpoint


def test_a_family_that_recognizes_a_checkpoint_wins_over_one_that_does_not_ask(site, checkpoint_of):
    site.install_family("phyla-plain", family_source("plain", "toy"), entry_point="plain")
    site.install_family(
        "phyla-marked",
        family_source("marked", "toy", recognizes="'<m>' in (checkpoint.chat_template or '')"),
        entry_point="marked",
    )
    made = registry(site)
    assert made.family_for(checkpoint_of("toy", chat_template="<m>")).name == "marked"
    assert made.family_for(checkpoint_of("toy", chat_template="<n>")).name == "plain"
    assert made.family_for(checkpoint_of("toy"), "marked").name == "marked"


@pytest.mark.parametrize("recognizes", [None, "True"])
def test_a_tie_names_both_distributions_and_how_to_decide(site, checkpoint_of, recognizes):
    for word in ("one", "two"):
        site.install_family(
            f"phyla-{word}", family_source(word, "toy", recognizes=recognizes), entry_point=word
        )
    made = registry(site)
    with pytest.raises(UnsupportedModelError) as failure:
        made.family_for(checkpoint_of("toy"))
    assert "phyla-one 1.0" in str(failure.value)
    assert "phyla-two 1.0" in str(failure.value)
    assert 'family="one" or family="two"' in str(failure.value.hint)
    assert failure.value.distributions == ("phyla-one", "phyla-two")
    assert failure.value.model_type == "toy"
    assert made.family_for(checkpoint_of("toy"), "two").name == "two"


def test_a_checkpoint_without_a_model_type_can_only_be_recognized(site, checkpoint_of):
    site.install_family("phyla-plain", family_source("plain", "toy"), entry_point="plain")
    site.install_family(
        "phyla-old",
        family_source("old", "old", recognizes="'Old' in checkpoint.config['architectures']"),
        entry_point="old",
    )
    made = registry(site)
    assert made.family_for(checkpoint_of(None, architectures=["Old"])).name == "old"
    with pytest.raises(UnsupportedModelError, match="without a model type"):
        made.family_for(checkpoint_of(None, architectures=["New"]))


def test_a_sibling_of_a_family_is_refused_by_what_it_is(checkpoint_of):
    family = Family(
        name="one",
        model_types=("one", "one_moe"),
        config=FamilyConfig,
        model=lambda config: None,  # pyright: ignore[reportArgumentType]
        siblings={"one_drafter": "a drafter, which cannot run alone"},
    )

    class Module:
        @hookimpl
        def phyla_provide_families(self):
            return [family]

    registry = make_registry(modules=[Module()])
    with pytest.raises(UnsupportedModelError, match="a drafter, which cannot run alone") as caught:
        registry.family_for(checkpoint_of("one_drafter"))
    assert caught.value.model_type == "one_drafter"
    assert caught.value.hint is not None
    assert "one_moe" in caught.value.hint


def test_no_family_lists_the_model_types_that_are_close(checkpoint_of):
    made = make_registry(modules=[plugin_bringing(family("toy", "qwen3", "qwen3_moe", "llama"))])
    with pytest.raises(UnsupportedModelError) as failure:
        made.family_for(checkpoint_of("qwen3_next"))
    assert "Model types close to it: qwen3_moe, qwen3." in str(failure.value)
    assert failure.value.field == "model_type"
    assert failure.value.hint == 'Install a package that brings it, or try family="toy".'


@pytest.mark.parametrize("model_type", ["mamba2", "qwen2_moe", "gemma", "llava"])
def test_no_family_says_of_nothing_that_it_is_close_to_what_is_only_spelt_alike(
    checkpoint_of, model_type
):
    known = ("qwen3", "qwen3_moe", "llama", "gemma4", "minicpm")
    made = make_registry(modules=[plugin_bringing(family("toy", *known))])
    with pytest.raises(UnsupportedModelError) as failure:
        made.family_for(checkpoint_of(model_type))
    assert "close to it" not in str(failure.value)
    assert "Known model types: gemma4, llama, minicpm, qwen3, qwen3_moe." in str(failure.value)
    assert failure.value.hint == "Install a package that brings it."


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen3-foo", ["qwen3"]),
        ("mincpm", ["minicpm"]),
        ("nemotronh_puzle", ["nemotron_h_puzzle"]),
        ("lama", []),
        ("toyish", []),
        ("gemma3", []),
    ],
)
def test_a_likeness_is_a_stem_or_a_slip(name, expected):
    known = ("qwen3", "minicpm", "nemotron_h_puzzle", "llama", "toy", "gemma4")
    assert alike(name, known) == expected


def test_an_unknown_family_name_lists_the_installed_ones(checkpoint_of):
    made = make_registry(modules=[plugin_bringing(family("toy", "toy"))])
    with pytest.raises(RequestError, match="toys") as failure:
        made.family_for(checkpoint_of("toy"), "toys")
    assert failure.value.field == "family"
    assert failure.value.expected == ("toy",)


def test_a_name_chooses_among_the_architectures_of_one_family_by_model_type(checkpoint_of):
    first, second = family("toy", "toy"), family("toy", "toy_moe", recognizes=lambda _: False)
    made = make_registry(modules=[plugin_bringing(first, second)])
    assert made.family_for(checkpoint_of("toy"), "toy") is first
    assert made.family_for(checkpoint_of("toy_moe"), "toy") is second
    with pytest.raises(UnsupportedModelError, match="No architecture of family 'toy'"):
        made.family_for(checkpoint_of("other"), "toy")


def test_the_only_architecture_of_a_named_family_takes_any_model_type(checkpoint_of):
    only = family("toy", "toy", recognizes=lambda _: False)
    made = make_registry(modules=[plugin_bringing(only)])
    assert made.family_for(checkpoint_of("other"), "toy") is only


def _fail(checkpoint: object) -> bool:
    raise KeyError("chat_template")


def test_a_family_that_fails_while_it_looks_is_named(checkpoint_of):
    made = make_registry(
        modules=[plugin_bringing(family("bad", "toy", recognizes=_fail), family("good", "toy"))]
    )
    with pytest.raises(PluginError, match="'bad' looked at the checkpoint") as failure:
        made.family_for(checkpoint_of("toy"))
    assert isinstance(failure.value.__cause__, KeyError)
    assert 'family="bad" or family="good"' in str(failure.value.hint)
    assert made.family_for(checkpoint_of("toy"), "good").name == "good"


def test_a_family_that_fails_while_it_looks_does_not_stop_one_that_recognizes(checkpoint_of):
    sure = family("sure", "toy", recognizes=lambda _: True)
    bad = family("bad", "toy", recognizes=_fail)
    assert (
        make_registry(modules=[plugin_bringing(bad, sure)]).family_for(checkpoint_of("toy")) is sure
    )


PLUGIN = Plugin(
    group=PLUGINS_GROUP, entry_point="toy", distribution="toy", version="1", load=lambda: None
)
ANSWERS: dict[str, Callable[[object], bool] | None] = {
    "does not ask": None,
    "yes": lambda _: True,
    "no": lambda _: False,
}


@given(
    declared=st.lists(
        st.tuples(st.sampled_from([("a",), ("b",), ("a", "b")]), st.sampled_from(sorted(ANSWERS)))
    ),
    model_type=st.sampled_from(["a", "b", "c", None]),
    order=st.randoms(use_true_random=False),
)
def test_the_choice_follows_the_rules_in_any_order(checkpoint_of, declared, model_type, order):
    claims = [
        (PLUGIN, family(str(i), *types, recognizes=ANSWERS[answer]))
        for i, (types, answer) in enumerate(declared)
    ]
    order.shuffle(claims)
    won = {int(each.name) for _, each in winners(claims, checkpoint_of(model_type))}
    fitting = {
        i: answer
        for i, (types, answer) in enumerate(declared)
        if model_type in types or (model_type is None and answer != "does not ask")
    }
    sure = {i for i, answer in fitting.items() if answer == "yes"}
    assert won == (sure or {i for i, answer in fitting.items() if answer == "does not ask"})


# The other hooks


HOOKS = """
from phyla.hooks import hookimpl

class Watcher:
    def finished(self, reply):
        pass

@hookimpl{first}
def phyla_observers():
    return {observers}

@hookimpl{first}
def phyla_logits_processors(request):
    return {processors}
"""


def _hooks(observers: str = "[Watcher()]", processors: str = "[max]", first: str = "") -> str:
    return HOOKS.format(observers=observers, processors=processors, first=first)


def test_observers_and_processors_are_handed_back_as_objects(site):
    site.install_family("phyla-extra", _hooks(), group="phyla.plugins")
    made = registry(site)
    (observer,) = made.observers()
    assert type(observer).__name__ == "Watcher"
    assert made.logits_processors(Options()) == (max,)


def test_a_request_without_processors_gets_none(site):
    site.install_family("phyla-extra", _hooks(processors="None"), group="phyla.plugins")
    assert registry(site).logits_processors(Options()) == ()


def test_the_order_that_a_plugin_asks_for_is_kept(site):
    site.install_family("phyla-b", _hooks(), entry_point="b", group="phyla.plugins")
    site.install_family(
        "phyla-a",
        _hooks(processors="[min]", first="(tryfirst=True)"),
        entry_point="a",
        group="phyla.plugins",
    )
    assert registry(site).logits_processors(Options()) == (min, max)


@pytest.mark.parametrize("observers", ["[1 / 0]", "[object()]", "7"])
def test_an_observer_plugin_that_fails_is_set_aside_and_others_go_on(site, observers):
    site.install_family("phyla-a", _hooks(observers), entry_point="a", group="phyla.plugins")
    site.install_family("phyla-b", _hooks(), entry_point="b", group="phyla.plugins")
    made = registry(site)
    assert len(made.observers()) == 1
    assert [broken.entry_point for broken in made.broken] == ["a"]
    assert made.logits_processors(Options()) == (max,)


@pytest.mark.parametrize("processors", ["[1 / 0]", "[7]"])
def test_a_processor_that_fails_is_an_error_of_its_plugin(site, processors):
    site.install_family("phyla-a", _hooks(processors=processors), group="phyla.plugins")
    with pytest.raises(PluginError, match="phyla-a") as failure:
        registry(site).logits_processors(Options())
    assert failure.value.distributions == ("phyla-a",)


def test_a_command_that_fails_is_reported_and_others_are_added(site):
    head = "from phyla.hooks import hookimpl\n@hookimpl\ndef phyla_commands(app):\n    "
    site.install_family(
        "phyla-a", head + "raise OSError('no')\n", entry_point="a", group="phyla.plugins"
    )
    site.install_family(
        "phyla-b", head + "app.append('b')\n", entry_point="b", group="phyla.plugins"
    )
    app: Any = []
    (broken,) = registry(site).add_commands(app)
    assert (app, broken.distribution, broken.reason) == (["b"], "phyla-a", "OSError: no")


def test_without_mlx_the_error_says_what_to_install():
    code = (
        "import sys\n"
        "sys.modules['mlx.core'] = None\n"
        "from phyla.errors import PhylaError\n"
        "from phyla.registry import discover\n"
        "try:\n    discover().listing()\n"
        "except PhylaError as error:\n    print(error)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert "MLX cannot be imported" in out
    assert "phyla[cpu]" in out
    assert issubclass(PluginError, PhylaError)
