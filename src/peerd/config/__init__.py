"""peerd.toml and the environment become frozen settings; every error at once, with its line and remedy.

A process of a node has settings, and reads none; so what reads them is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from peerd.config.loading import check, load
    from peerd.config.problems import ConfigError
    from peerd.config.settings import Settings

__all__ = ["ConfigError", "Settings", "check", "load"]

_MODULES: Final = {"ConfigError": "problems", "Settings": "settings", "check": "loading", "load": "loading"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"peerd.config.{_MODULES[name]}"), name)
    raise AttributeError(f"peerd.config has no {name!r}; it has {', '.join(__all__)}")
