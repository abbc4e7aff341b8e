"""Plugins that come with Phyla and are no model family."""
