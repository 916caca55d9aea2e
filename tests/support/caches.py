"""Clearing the caches of modules whose functions a test has replaced."""

from __future__ import annotations

from types import ModuleType


def clear_caches(*modules: ModuleType) -> None:
    """Empty each `functools.lru_cache` of these modules."""
    for module in modules:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
