"""The plan of a node: which processes it has. The CLI computes it; the master believes it, and knows no user code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from peerd.runtime.frames import MAXIMUM, FrameError, encode

ROLES: Final = ("agent", "manager", "worker", "command")

LARGEST_PAYLOAD: Final = MAXIMUM // 2
"""Bytes; it travels in one frame with the rest of a slot's plan."""


class PlanError(ValueError):
    """The plan cannot be carried out: which part of it, and why."""


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """One place for a process. All times are seconds.

    A slot of role `command` runs `command`, any program; the others call `entry` (`module:callable`) with `payload` in
    a fresh interpreter. `kind` is the config section's name, or `agent`, or `manager`. A stop leaves `grace` to running
    work and then `give_back` for giving the rest back. A slot that keeps failing is tried again after
    `backoff_initial`, doubled each time, at most `backoff_maximum`; one that has been ready for `stable_after` starts
    from nothing again.
    """

    name: str
    kind: str
    role: str = "worker"
    entry: str = ""
    payload: Any = None
    command: tuple[str, ...] = ()
    grace: float = 30.0
    give_back: float = 5.0
    boot_timeout: float = 60.0
    backoff_initial: float = 0.5
    backoff_maximum: float = 30.0
    stable_after: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> SlotPlan:
        """Read a slot from the plan's JSON.

        Raises:
            PlanError: a key is missing, unknown, or contradicts another.
        """
        where = f"slot {data.get('name', '?')!r}"
        slot: SlotPlan = _parse(cls, where, {**data, "command": tuple(data.get("command", ()))})
        try:
            size = len(encode({"payload": slot.payload}))
        except FrameError as error:
            raise PlanError(f"{where}: its payload: {error}") from error
        if size > LARGEST_PAYLOAD:
            raise PlanError(f"{where}: its payload has {size} bytes, and {LARGEST_PAYLOAD} are allowed")
        if slot.role not in ROLES:
            raise PlanError(f"{where}: role {slot.role!r} is none of {', '.join(ROLES)}")
        if (slot.role == "command") != bool(slot.command) or (slot.role != "command") != bool(slot.entry):
            raise PlanError(f"{where}: a command slot has a command, and every other one an entry")
        return slot


@dataclass(frozen=True, slots=True)
class Plan:
    """A node: its name, its folders, its slots; `shutdown_interval` is the longest time between two looks, seconds."""

    node: str
    run_directory: str
    project_directory: str
    slots: tuple[SlotPlan, ...]
    shutdown_interval: float = 1.0
    grace: float = 30.0

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Plan:
        """Read a plan from its JSON.

        Raises:
            PlanError: it is not one; the text says where.
        """
        grace = {"grace": data["grace"]} if "grace" in data else {}
        slots = tuple(SlotPlan.parse({**grace, **slot}) for slot in data.get("slots", ()))
        plan: Plan = _parse(cls, "the plan", {**data, "slots": slots})
        names = [slot.name for slot in slots]
        if len(set(names)) < len(names):
            raise PlanError(f"two slots have the same name: {', '.join(sorted(names))}")
        if sum(slot.role == "agent" for slot in slots) > 1:
            raise PlanError("a node has one agent")
        return plan


def _parse(cls: type[Any], where: str, data: Mapping[str, Any]) -> Any:
    known = {f.name for f in fields(cls)}
    if unknown := data.keys() - known:
        raise PlanError(f"{where}: unknown {', '.join(sorted(unknown))}")
    try:
        return cls(**data)
    except TypeError as error:
        raise PlanError(f"{where}: {error}") from error
