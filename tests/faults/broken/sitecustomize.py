"""Breaks the processes of a node as they start, where $PEERD_BREAK names a variant of the queue server."""

from __future__ import annotations

import os


def _break_process() -> None:
    slot = [*os.environ.get("PEERD_PROCESS", "").split("/"), ""][1]
    variant = os.environ.get("PEERD_BREAK")
    if slot and variant:
        from tests.faults.gateway_mutations import MUTATIONS  # noqa: PLC0415 - in the processes that are broken alone

        if MUTATIONS[variant].slot == slot:
            MUTATIONS[variant].apply()


_break_process()
