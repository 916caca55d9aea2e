"""peerd.toml and the environment become frozen settings; every error at once, with its line and remedy."""

from peerd.config.address import mask_url, normalise_url
from peerd.config.loading import FILE_NAME, Check, check, load
from peerd.config.problems import ConfigError, Problem
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
from peerd.config.template import template

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
    "template",
]
