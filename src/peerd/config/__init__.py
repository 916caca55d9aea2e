"""peerd.toml and the environment become frozen settings; every error at once, with its line and remedy.

The names are loaded at their first use: every process of a node has settings, and only a few read them from a file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from peerd.config.address import mask_url, normalise_url
    from peerd.config.loading import FILE_NAME, Check, check, load
    from peerd.config.problems import ConfigError, Problem
    from peerd.config.settings import (
        AccessSettings,
        DatabaseSettings,
        GatewaySettings,
        LoggingSettings,
        ManagerSettings,
        NodeSettings,
        QueueSettings,
        ScheduleSettings,
        Settings,
        StatisticsSettings,
        WebSettings,
        WorkerSettings,
    )

__all__ = [
    "FILE_NAME",
    "AccessSettings",
    "Check",
    "ConfigError",
    "DatabaseSettings",
    "GatewaySettings",
    "LoggingSettings",
    "ManagerSettings",
    "NodeSettings",
    "Problem",
    "QueueSettings",
    "ScheduleSettings",
    "Settings",
    "StatisticsSettings",
    "WebSettings",
    "WorkerSettings",
    "check",
    "load",
    "mask_url",
    "normalise_url",
]

_MODULES: Final = ("problems", "address", "settings", "loading")
"""Those that define the names; each imports the ones before it or takes longer to load."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in map(import_module, (f"peerd.config.{module}" for module in _MODULES)):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"peerd.config has no {name!r}; it has {', '.join(__all__)}")
