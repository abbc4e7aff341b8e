"""Settings of the documentation: `sphinx-build -W docs docs/_build`."""

from __future__ import annotations

from importlib.metadata import version as installed_version

project = "Phyla"
author = "The Phyla developers"
project_copyright = author
version = release = installed_version("phyla")

extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = "Phyla"
