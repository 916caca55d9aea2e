"""The command line: a module for each command or group of commands."""

from __future__ import annotations


def main() -> None:
    """The program ``peerd``."""
    from peerd.runtime.process import interpreter  # noqa: PLC0415 - importing the package must cost nothing

    interpreter.disable_gc()
    from peerd.cli.app import run  # noqa: PLC0415

    run()
