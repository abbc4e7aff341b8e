"""Makes `python -m phyla.cli` the same as `phyla`."""

from phyla.cli import main

main()
