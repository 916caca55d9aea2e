"""peerd.toml and the environment become frozen settings; every error at once, with its line and remedy.

Nothing is loaded before it is asked for: every process of a node has settings, and only a few of them read any.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peerd.config.address import mask_url, normalise_url
    from peerd.config.problems import ConfigError, Problem
    from peerd.config.reading.loading import FILE_NAME, Check, check, load
    from peerd.config.settings import (
        DatabaseSettings,
        LoggingSettings,
        ManagerSettings,
        NodeSettings,
        ScheduleSettings,
        Settings,
        WebSettings,
        WorkerSettings,
    )

_HOMES = {
    "FILE_NAME": "peerd.config.reading.loading",
    "Check": "peerd.config.reading.loading",
    "ConfigError": "peerd.config.problems",
    "DatabaseSettings": "peerd.config.settings",
    "LoggingSettings": "peerd.config.settings",
    "ManagerSettings": "peerd.config.settings",
    "NodeSettings": "peerd.config.settings",
    "Problem": "peerd.config.problems",
    "ScheduleSettings": "peerd.config.settings",
    "Settings": "peerd.config.settings",
    "WebSettings": "peerd.config.settings",
    "WorkerSettings": "peerd.config.settings",
    "check": "peerd.config.reading.loading",
    "load": "peerd.config.reading.loading",
    "mask_url": "peerd.config.address",
    "normalise_url": "peerd.config.address",
}

__all__ = [
    "FILE_NAME",
    "Check",
    "ConfigError",
    "DatabaseSettings",
    "LoggingSettings",
    "ManagerSettings",
    "NodeSettings",
    "Problem",
    "ScheduleSettings",
    "Settings",
    "WebSettings",
    "WorkerSettings",
    "check",
    "load",
    "mask_url",
    "normalise_url",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"peerd.config has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
