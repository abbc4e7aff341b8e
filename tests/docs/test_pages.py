"""The documentation says what the code says."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

from phyla import errors
from phyla.caching import CacheLimits, CacheStats
from phyla.engine.engine import Engine, load
from phyla.events import Reply
from phyla.media import MediaLimits
from phyla.options import Options
from phyla.registry import discover

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def table(page: str) -> list[list[str]]:
    """The rows of a page's tables whose first cell is code, cells without their back-quotes."""
    rows = re.findall(r"^\| (`.*) \|$", (DOCS / page).read_text(), flags=re.MULTILINE)
    return [[cell.strip().replace("`", "") for cell in row.split("|")] for row in rows]


def test_the_families_page_lists_the_bundled_families_and_their_model_types():
    bundled = {
        row.name: set(row.model_types)
        for row in discover().listing().families
        if row.distribution == "phyla"
    }
    assert {name: set(types.split(", ")) for name, types in table("families.md")} == bundled


def test_the_media_page_says_of_every_bundled_family_what_it_reads():
    bundled = {row.name for row in discover().listing().families if row.distribution == "phyla"}
    assert {row[0] for row in table("media.md") if len(row) == 4} == bundled


def test_the_media_page_names_every_limit_and_its_default():
    said = {row[0]: row[2] for row in table("media.md") if len(row) == 3}
    units = {"max_bytes": "512 MiB", "hosts": "all"}
    for limit in dataclasses.fields(MediaLimits):
        shown = units.get(limit.name)
        if shown is None:
            integer = type(limit.default) is int
            shown = f"{limit.default:,}" if integer else str(limit.default).removesuffix(".0")
        assert said[limit.name] == shown, limit.name
    assert MediaLimits().max_bytes == 512 * 2**20


def test_the_interface_page_names_every_number_of_the_prompt_cache():
    rows = {row[0]: row[1] for row in table("api.md") if len(row) == 2}
    for kind in (CacheLimits, CacheStats):
        for field in dataclasses.fields(kind):
            assert re.search(rf"\b{field.name}\b", rows[kind.__name__]), field.name


def test_the_errors_page_lists_every_error_and_its_fault():
    tree = {
        name: kind.fault
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.PhylaError)
    }
    assert {row[0]: row[1] for row in table("errors.md")} == tree


def test_the_errors_page_lists_the_attributes_of_each_error():
    common = {"message", "field", "hint"}
    for name, _, _, attributes in table("errors.md"):
        parameters = inspect.signature(getattr(errors, name)).parameters
        said = {each for each in attributes.split(", ") if each}
        assert said == parameters.keys() - common, name


def test_every_page_is_in_the_table_of_contents():
    listed = set(re.findall(r"^([\w-]+)$", (DOCS / "index.md").read_text(), flags=re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} == listed


def test_the_readme_holds_one_test_command_for_ci():
    command = re.findall(
        r"^<!-- test-command -->\n+```\w*\n(.*?)^```",
        (ROOT / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert len(command) == 1
    assert "pytest" in command[0]


def test_the_interface_page_names_every_option_reply_field_and_method():
    rows = {row[0] for row in table("api.md")}
    public = {name for name in vars(Engine) if not name.startswith("_")}
    methods = {name for name in public if inspect.isfunction(vars(Engine)[name])}
    wanted = set(Options.model_fields) | set(Reply.model_fields) | methods
    wanted |= set(inspect.signature(load).parameters)
    assert wanted <= rows, wanted - rows
