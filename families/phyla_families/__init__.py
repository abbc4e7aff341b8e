"""The model families that come with Phyla; each folder is one plugin."""
