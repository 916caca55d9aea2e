"""The settings of a node: frozen values, every duration in seconds and every size in bytes.

They come from `peerd.config.load`; docs/configuration.md explains each key. The comments here say only the unit or
the meaning that a name cannot.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from peerd.config.address import mask_url, normalise_url
from peerd.config.values import (
    AlertRate,
    Bindings,
    Count,
    Duration,
    EntryPoint,
    EntryPoints,
    Few,
    FileMode,
    FilePath,
    Flag,
    HookUrl,
    KindNames,
    MailServer,
    Name,
    Period,
    PeriodOrNone,
    Places,
    Processors,
    Proxies,
    QueueName,
    QueueNames,
    Size,
    Text,
    Texts,
    listed,
)
from peerd.domain.alert import AlertKind, Rate


class Section(BaseModel):
    """A table of peerd.toml: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, hide_input_in_errors=True)


class NodeSettings(Section):
    """[node]: this machine, or this one of several nodes on it."""

    name: Name = Field(default_factory=socket.gethostname)
    address: Annotated[Text, Field(max_length=255)] | None = None
    zone: Annotated[Text, Field(max_length=100)] | None = None
    run_directory: FilePath = Path(".peerd")
    grace: Duration = 30.0
    shutdown_interval: Period = 1.0
    heartbeat_every: Period = 2.0
    silent_after: Period = 60.0
    environment: Annotated[Text, Field(max_length=100)] | None = None  # such as "production", for schedules


def _usable(url: str) -> str:
    normalise_url(url)
    return url


class DatabaseSettings(Section):
    """[database]: where the table is. `url` holds the password; it is masked wherever the settings are printed."""

    url: Annotated[str, AfterValidator(_usable)] = "sqlite:///peerd.sqlite"
    password_file: FilePath | None = None
    pool_size: Few = 4

    @property
    def masked_url(self) -> str:
        """The address as it may be shown."""
        return mask_url(self.url)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Every representation of the settings masks the password."""
        for name, value in super().__repr_args__():
            yield name, self.masked_url if name == "url" else value


class ClusterSettings(Section):
    """[cluster]: what all nodes have in common, and where this one hears the doorbell."""

    secret: Annotated[Text, Field(min_length=16, max_length=1000)] | None = None
    secret_file: FilePath | None = None
    bind: Annotated[Text, Field(max_length=255)] | None = None  # None: every address; on SQLite, loopback
    port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 0  # of UDP; 0: a free one

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Every representation of the settings masks the secret."""
        for name, value in super().__repr_args__():
            yield name, "***" if name == "secret" and value is not None else value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        problem = "is a text; write the program and its arguments as a list, no shell reads them"
        raise ValueError(problem)  # noqa: TRY004 - pydantic words ValueErrors
    return tuple(value) if isinstance(value, list) else value


class WorkerSettings(Section):
    """[workers.NAME]: processes of one kind that run a user's code. Exactly one of `tasks` and `worker` is given."""

    tasks: EntryPoints | None = None
    worker: EntryPoint | None = None
    enabled: Flag = True
    processes: Few = 1
    count: Places = 1  # tasks at once in each process
    queues: QueueNames | None = None  # None: those that the code names
    max_attempts: Count = 3
    delay_ratio: Duration = 300.0  # the delay before a retry is attempts × this
    update: Period = 3.0  # between two touches of a running task
    sleep: Duration = 1.0  # between two loops
    poll_every: Period = 1.0  # at most, when there is nothing to do
    rung_poll_every: Period = 10.0  # the same, while the doorbell is known to work
    timeout: Period | None = None  # of one attempt
    grace: Duration | None = None  # None: the node's
    recycle_after: Count | None = None  # tasks
    recycle_age: Period | None = None
    recycle_memory: Size | None = None
    recycle_cpu: Processors | None = None
    hang_after: Period | None = None  # None: the event loop may be blocked for as long as it likes
    options: Mapping[str, Any] = Field(default_factory=dict)  # the user's own


class CommandSettings(Section):
    """[commands.NAME]: any other program, supervised the same way."""

    command: Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(_words)]
    enabled: Flag = True
    processes: Few = 1
    grace: Duration | None = None  # None: the node's
    recycle_memory: Size | None = None
    recycle_cpu: Processors | None = None
    environment: Mapping[Text, Text] = Field(default_factory=dict)


class AgentSettings(Section):
    """[agent]: code of the user that each machine has once."""

    setup: EntryPoint | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)  # the user's own


class MailSettings(Section):
    """[alerts.NAME.mail]: where mails go, and how."""

    server: MailServer
    sender: Text
    to: Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(listed)]
    tls: Literal["none", "starttls", "tls"] = "none"
    user: Text | None = None
    password_file: FilePath | None = None

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where to connect."""
        host, _, port = self.server.rpartition(":") if ":" in self.server else (self.server, "", "")
        return host, int(port or (465 if self.tls == "tls" else 25))


class AlertSettings(Section):
    """[alerts.NAME]: a hook for what a person should hear of. Exactly one of the four ways is given."""

    webhook: HookUrl | None = None
    mail: MailSettings | None = None
    command: Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(_words)] | None = None
    log: Flag = False
    on: Annotated[tuple[AlertKind, ...], Field(min_length=1), BeforeValidator(listed)] | None = None  # None: all
    at_most: AlertRate = Rate(1, 300.0)  # of each kind
    enabled: Flag = True

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Every representation of the settings masks what may be a secret."""
        for name, value in super().__repr_args__():
            yield name, "***" if name == "webhook" and value is not None else value


class ScheduleSettings(Section):
    """[schedules.NAME]: what runs every so often, or when a clock says so. Either `run` or `queue` is given."""

    run: EntryPoint | None = None  # a function, called in a worker process
    args: tuple[Any, ...] | Mapping[str, Any] | None = None
    workers: KindNames | None = None  # whose processes may run it; None: all
    queue: QueueName | None = None  # … or a task is enqueued
    task: Annotated[Text, Field(max_length=200)] | None = None
    body: Any = None
    limit_key: Text | None = None
    type: Annotated[Text, Field(max_length=200)] = "cluster"
    interval: Period | None = None
    cron: Text | None = None
    timezone: Text = "UTC"
    immediate: Flag = False
    overlap: Literal["skip", "queue", "allow"] = "skip"
    misfire: Literal["skip", "run_once"] = "skip"
    misfire_grace: Duration = 60.0
    jitter: Duration = 0.0
    timeout: Period | None = None
    enabled: Flag = True
    environments: Texts | None = None


class WebSettings(Section):
    """[web.NAME]: processes that serve an ASGI app on sockets that they share."""

    app: EntryPoint
    factory: Flag = False  # the app is what calling `app` returns
    bind: Bindings
    enabled: Flag = True
    processes: Few = 1
    grace: Duration | None = None  # None: the node's
    keep_alive: Period = 5.0  # of an idle connection
    backlog: Count = 2048  # connections that wait to be accepted
    unix_mode: FileMode = 0o666
    reuse_port: Flag = False
    concurrency: Count | None = None  # requests at once in each process
    max_head: Size = 65_536  # of a request's line and headers
    head_timeout: Period = 30.0
    max_message: Size = 16_777_216  # of a WebSocket
    root_path: Text = ""
    forwarded_allow_ips: Proxies = ("127.0.0.1", "::1")
    access_log: Flag = False
    recycle_after: Count | None = None  # requests
    recycle_age: Period | None = None
    recycle_memory: Size | None = None
    recycle_cpu: Processors | None = None
    hang_after: PeriodOrNone = 60.0
    options: Mapping[str, Any] = Field(default_factory=dict)  # the user's own


class ManagerSettings(Section):
    """[manager]: the periods of the chores."""

    every: Period = 1.0
    max_update: Period = 30.0
    max_completed: Duration = 3_600.0
    max_failed: Duration = 259_200.0
    inactive_after: Period = 4.0  # where it is not given: two heartbeats
    pinned_policy: Literal["wait", "move", "fail"] = "wait"
    pinned_after: Duration = 600.0
    batch: Annotated[int, Field(strict=True, ge=1, le=500)] = 500
    max_runs: Count = 1000  # of each schedule
    max_run_age: Duration = 2_592_000.0


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class LoggingSettings(Section):
    """[logging]: what the log says, and in which form."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    format: Literal["console", "json"] = "console"
    file: FilePath | None = None  # None: of `peerd start`, peerd.log in the run directory; of `peerd up`, none
    max_size: Size = 50_000_000  # of the file, then it is rotated; 0: never
    keep: Few = 5  # rotated files


class Document(Section):
    """The tables of peerd.toml."""

    node: NodeSettings = Field(default_factory=NodeSettings)
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    cluster: ClusterSettings = Field(default_factory=ClusterSettings)
    workers: Mapping[Name, WorkerSettings] = Field(default_factory=dict)
    web: Mapping[Name, WebSettings] = Field(default_factory=dict)
    commands: Mapping[Name, CommandSettings] = Field(default_factory=dict)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    schedules: Mapping[Name, ScheduleSettings] = Field(default_factory=dict)
    manager: ManagerSettings = Field(default_factory=ManagerSettings)
    logging: LoggingSettings = Field(default_factory=LoggingSettings)
    alerts: Mapping[Name, AlertSettings] = Field(default_factory=dict)


class Settings(Document):
    """The whole: what peerd.toml says, and where it is. Paths are absolute when they come from `load`."""

    project_directory: Path
    file: Path | None = None

    @property
    def log_file(self) -> Path:
        """Where the node logs to when it runs in the background."""
        return self.logging.file or self.node.run_directory / "peerd.log"
