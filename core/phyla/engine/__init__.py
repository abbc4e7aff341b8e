"""The engine: decode loop, caches, scheduler. Private: nothing outside `phyla` imports it."""
