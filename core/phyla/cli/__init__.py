"""The command line. Importing it loads no MLX."""

from phyla.cli.app import main, make_app

__all__ = ["main", "make_app"]
