"""peerd: background work on a cluster of equal machines, with a SQL table for a queue.

Everything that a user needs is here and documented in docs/api.md. Nothing is loaded before it is asked for: the master
of a node imports this package too, and must stay small.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes as long as the rest of a program's start
if TYPE_CHECKING:
    from typing import Any

    from peerd.agent.setup import Agent
    from peerd.domain.access import Actor, Right, Role
    from peerd.domain.bulk import (
        BulkBury,
        BulkCancel,
        BulkChange,
        BulkDelete,
        BulkKick,
        BulkMove,
        BulkMoveToQueue,
        BulkRetry,
        BulkSnooze,
    )
    from peerd.domain.errors import (
        InvalidArguments,
        InvalidMessage,
        InvalidTask,
        MessageTooLarge,
        MessengerFull,
        NoReply,
        NotPermitted,
        PeerdError,
        ProcessStopping,
        RequestFailed,
        TaskNotFound,
        Undeliverable,
    )
    from peerd.domain.lifecycle import IllegalTransition, Status
    from peerd.domain.outcome import Cancel, Dead, Retry, Snooze
    from peerd.domain.task import Attempt, Call, Task
    from peerd.domain.units import parse_duration, parse_size
    from peerd.operate.client import Client
    from peerd.operate.job import Job, JobCanceled, JobExpired, JobFailed
    from peerd.operate.task_filter import TaskFilter
    from peerd.runtime.frames import Peer, Target
    from peerd.runtime.inbox import Message
    from peerd.runtime.messenger import Delivery, Messenger
    from peerd.runtime.observability.error_reporting import ErrorReport
    from peerd.runtime.os_processes import ResourceLimits, launch_command
    from peerd.runtime.process.process_context import ProcessContext
    from peerd.schedules.run_executor import ScheduleContext
    from peerd.shared.client import SharedClient, Subscription, Update
    from peerd.shared.protocol import AgentLost, NotShared, SharedCallFailed, SharedCallTimedOut, SharedError
    from peerd.work.context import Context
    from peerd.work.handlers import Queue
    from peerd.work.task_worker import TaskWorker
    from peerd.work.worker import Worker

_HOMES = {
    "Actor": "peerd.domain.access",
    "Agent": "peerd.agent.setup",
    "AgentLost": "peerd.shared.protocol",
    "Attempt": "peerd.domain.task",
    "BulkBury": "peerd.domain.bulk",
    "BulkCancel": "peerd.domain.bulk",
    "BulkChange": "peerd.domain.bulk",
    "BulkDelete": "peerd.domain.bulk",
    "BulkKick": "peerd.domain.bulk",
    "BulkMove": "peerd.domain.bulk",
    "BulkMoveToQueue": "peerd.domain.bulk",
    "BulkRetry": "peerd.domain.bulk",
    "BulkSnooze": "peerd.domain.bulk",
    "Call": "peerd.domain.task",
    "Cancel": "peerd.domain.outcome",
    "Client": "peerd.operate.client",
    "Context": "peerd.work.context",
    "Dead": "peerd.domain.outcome",
    "Delivery": "peerd.runtime.messenger",
    "ErrorReport": "peerd.runtime.observability.error_reporting",
    "IllegalTransition": "peerd.domain.lifecycle",
    "InvalidArguments": "peerd.domain.errors",
    "InvalidMessage": "peerd.domain.errors",
    "InvalidTask": "peerd.domain.errors",
    "Job": "peerd.operate.job",
    "JobCanceled": "peerd.operate.job",
    "JobExpired": "peerd.operate.job",
    "JobFailed": "peerd.operate.job",
    "Message": "peerd.runtime.inbox",
    "MessageTooLarge": "peerd.domain.errors",
    "Messenger": "peerd.runtime.messenger",
    "MessengerFull": "peerd.domain.errors",
    "NoReply": "peerd.domain.errors",
    "NotPermitted": "peerd.domain.errors",
    "NotShared": "peerd.shared.protocol",
    "Peer": "peerd.runtime.frames",
    "PeerdError": "peerd.domain.errors",
    "ProcessContext": "peerd.runtime.process.process_context",
    "ProcessStopping": "peerd.domain.errors",
    "Queue": "peerd.work.handlers",
    "RequestFailed": "peerd.domain.errors",
    "ResourceLimits": "peerd.runtime.os_processes",
    "Retry": "peerd.domain.outcome",
    "Right": "peerd.domain.access",
    "Role": "peerd.domain.access",
    "ScheduleContext": "peerd.schedules.run_executor",
    "SharedCallFailed": "peerd.shared.protocol",
    "SharedCallTimedOut": "peerd.shared.protocol",
    "SharedClient": "peerd.shared.client",
    "SharedError": "peerd.shared.protocol",
    "Snooze": "peerd.domain.outcome",
    "Status": "peerd.domain.lifecycle",
    "Subscription": "peerd.shared.client",
    "Target": "peerd.runtime.frames",
    "Task": "peerd.domain.task",
    "TaskFilter": "peerd.operate.task_filter",
    "TaskNotFound": "peerd.domain.errors",
    "TaskWorker": "peerd.work.task_worker",
    "Undeliverable": "peerd.domain.errors",
    "Update": "peerd.shared.client",
    "Worker": "peerd.work.worker",
    "launch_command": "peerd.runtime.os_processes",
    "parse_duration": "peerd.domain.units",
    "parse_size": "peerd.domain.units",
}

__all__ = [
    "Actor",
    "Agent",
    "AgentLost",
    "Attempt",
    "BulkBury",
    "BulkCancel",
    "BulkChange",
    "BulkDelete",
    "BulkKick",
    "BulkMove",
    "BulkMoveToQueue",
    "BulkRetry",
    "BulkSnooze",
    "Call",
    "Cancel",
    "Client",
    "Context",
    "Dead",
    "Delivery",
    "ErrorReport",
    "IllegalTransition",
    "InvalidArguments",
    "InvalidMessage",
    "InvalidTask",
    "Job",
    "JobCanceled",
    "JobExpired",
    "JobFailed",
    "Message",
    "MessageTooLarge",
    "Messenger",
    "MessengerFull",
    "NoReply",
    "NotPermitted",
    "NotShared",
    "Peer",
    "PeerdError",
    "ProcessContext",
    "ProcessStopping",
    "Queue",
    "RequestFailed",
    "ResourceLimits",
    "Retry",
    "Right",
    "Role",
    "ScheduleContext",
    "SharedCallFailed",
    "SharedCallTimedOut",
    "SharedClient",
    "SharedError",
    "Snooze",
    "Status",
    "Subscription",
    "Target",
    "Task",
    "TaskFilter",
    "TaskNotFound",
    "TaskWorker",
    "Undeliverable",
    "Update",
    "Worker",
    "launch_command",
    "parse_duration",
    "parse_size",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"peerd has no {name!r}; it has {', '.join(sorted(_HOMES))}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
