"""What all connections of a process share: the engine, the options, and the counters that statistics show."""

from __future__ import annotations

import hmac
import os
import platform
import resource
import secrets
import socket
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from peerd.gateway.engine import Engine
from peerd.gateway.protocols.beanstalk import VERSION
from peerd.gateway.reply_memory import ReplyMemory
from peerd.gateway.table_counts import TableCounts

if TYPE_CHECKING:
    from peerd.gateway.connection import GatewayConnection


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and access of a gateway; sizes are in bytes, times in seconds."""

    protocols: tuple[str, ...] = ("beanstalk", "json")
    max_job_size: int = 65_535
    max_connections: int = 16_384
    max_buffered: int = 1_048_576
    max_buffered_total: int = 268_435_456
    head_timeout: float = 30.0
    body_timeout: float = 30.0
    token: str | None = None


class GatewayState:
    """Shared by the connections of one process."""

    def __init__(self, engine: Engine, options: GatewayOptions) -> None:
        self.engine = engine
        self.options = options
        self.is_draining = False
        """No job may be put (SIGUSR1)."""
        self.reply_memory = ReplyMemory(options.max_job_size)
        self.buffered = 0
        """Bytes that connections hold."""
        self.held_up: dict[GatewayConnection, None] = {}
        """Connections that are not read because all together have too much buffered."""
        self.connections = 0
        self.producers = 0
        self.workers = 0
        self.total_connections = 0
        self.commands: Counter[str | None] = Counter()
        """Executed commands, by the name that statistics have for them."""
        self.table_counts = TableCounts()
        self._id = secrets.token_hex(8)
        self._started_at = time.monotonic()

    def is_token(self, given: bytes) -> bool:
        """Whether a client's token is right; always, where none is needed."""
        token = self.options.token
        return token is None or hmac.compare_digest(given, token.encode())

    def statistics(self) -> Mapping[str, int | float | str | bool]:
        """The values of beanstalkd's ``stats`` that this process knows by itself."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        system = platform.uname()
        return {
            "job-timeouts": self.engine.ends.timeouts,
            "total-jobs": self.engine.puts.total,
            "max-job-size": self.options.max_job_size,
            "current-connections": self.connections,
            "current-producers": self.producers,
            "current-workers": self.workers,
            "current-waiting": self.engine.ready.waiters.total,
            "total-connections": self.total_connections,
            "pid": os.getpid(),
            "version": VERSION,
            "rusage-utime": usage.ru_utime,
            "rusage-stime": usage.ru_stime,
            "uptime": int(time.monotonic() - self._started_at),
            "draining": self.is_draining,
            "id": self._id,
            "hostname": socket.gethostname(),
            "os": system.version,
            "platform": system.machine,
        }
