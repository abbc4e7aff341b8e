"""The engine: decode loop, caches, scheduler. Private: nothing outside `phyla` imports it."""

from phyla.backend import prepare

# Before a module in here imports mlx: afterwards it is too late for a faster BLAS.
prepare()
