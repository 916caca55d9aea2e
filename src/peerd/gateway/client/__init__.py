"""The Python client of the JSON protocol: jobs without a driver of the database. It needs msgspec and nothing else.

`connect` gives a client whose calls block, `connect_async` one whose calls are awaited. Both put jobs into queues
(`add_job`), take them (`get_job`) and report them done (`notify`); docs/protocol.md describes what else they do.
"""

from peerd.gateway.client.clients import AsyncJobClient, JobClient, connect, connect_async
from peerd.gateway.client.exchange import (
    AddedJob,
    GatewayUnreachable,
    InvalidReply,
    JobClientError,
    JobConnectionLost,
    JobNotHeld,
    MessageRefused,
    NoWork,
    ReplyTimeout,
    TakenJob,
)

__all__ = [
    "AddedJob",
    "AsyncJobClient",
    "GatewayUnreachable",
    "InvalidReply",
    "JobClient",
    "JobClientError",
    "JobConnectionLost",
    "JobNotHeld",
    "MessageRefused",
    "NoWork",
    "ReplyTimeout",
    "TakenJob",
    "connect",
    "connect_async",
]
