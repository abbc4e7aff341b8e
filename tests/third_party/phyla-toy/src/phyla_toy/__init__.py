"""A toy model family for Phyla."""
