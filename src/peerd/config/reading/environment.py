"""Settings from the environment: PEERD_<SECTION>_<KEY> overrides the key of peerd.toml.

Workers have no such variables: their names may hold any character.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from peerd.config.problems import Problem
from peerd.config.reading.suggestions import did_you_mean
from peerd.config.settings import (
    ClusterSettings,
    DatabaseSettings,
    LoggingSettings,
    ManagerSettings,
    NodeSettings,
    Section,
    StatisticsSettings,
    TelemetrySettings,
)

CONFIG_VARIABLE = "PEERD_CONFIG"

SECTIONS: Mapping[str, type[Section]] = {
    "node": NodeSettings,
    "database": DatabaseSettings,
    "cluster": ClusterSettings,
    "manager": ManagerSettings,
    "statistics": StatisticsSettings,
    "logging": LoggingSettings,
    "telemetry": TelemetrySettings,
}


def setting_variables() -> dict[str, tuple[str, str]]:
    """Every variable that overrides a setting, with the section and the key that it overrides."""
    return {
        f"PEERD_{section}_{key}".upper(): (section, key)
        for section, model in SECTIONS.items()
        for key in model.known_keys()
    }


def read_overrides(environment: Mapping[str, str]) -> dict[tuple[str, str], Any]:
    """The settings that the environment gives, by section and key."""
    return {
        key_path: _parse_value(environment[variable], *key_path)
        for variable, key_path in setting_variables().items()
        if variable in environment
    }


def find_unknown_variables(environment: Mapping[str, str]) -> list[Problem]:
    """Variables that look like an override, and override nothing."""
    known = setting_variables()
    prefixes = tuple(f"PEERD_{section}_".upper() for section in SECTIONS)
    return [
        Problem("environment", None, name, "overrides no setting", did_you_mean(name, known))
        for name in sorted(environment)
        if name.startswith(prefixes) and name not in known
    ]


def _parse_value(text: str, section: str, key: str) -> Any:
    """A whole number where the setting is one; all other types are parsed from text."""
    is_number = get_type_hints(SECTIONS[section])[key] is int
    return int(text) if is_number and text.strip().isdecimal() and len(text) < 100 else text
