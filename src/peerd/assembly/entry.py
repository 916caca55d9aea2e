"""What an entry ``module:name`` of the config names."""

from __future__ import annotations

from importlib import import_module


class NoEntry(Exception):
    """It cannot be imported, or is not there; the text says which."""


def find(entry: str) -> object:
    """The object that an entry names.

    Raises:
        NoEntry: there is none.
    """
    module_name, _, attribute = entry.partition(":")
    try:
        found: object = import_module(module_name)
    except Exception as error:
        raise NoEntry(f"importing {module_name} failed: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise NoEntry(f"{module_name} has no {attribute}")
        found = getattr(found, part)
    return found
