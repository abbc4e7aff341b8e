"""Which plugins are installed, which families they bring, and which family takes a checkpoint.

A registry is made by a function and passed along; there is no global one. It imports a plugin only
when somebody asks for what plugins bring. A plugin that fails is kept with its error, as a
`BrokenPlugin`, and never stops another one.
"""

from phyla.registry.listing import FamilyRow, Listing
from phyla.registry.plugin import BrokenPlugin, InstalledFamily
from phyla.registry.registry import Registry, discover, make_registry

__all__ = [
    "BrokenPlugin",
    "FamilyRow",
    "InstalledFamily",
    "Listing",
    "Registry",
    "discover",
    "make_registry",
]
