"""The settings of a node: frozen values, every duration in seconds and every size in bytes.

`peerd.config.load` makes them of a file; docs/configuration.md explains each key. A field is a key of peerd.toml; its
type (`peerd.config.values`) defines how it is parsed. Every process loads this module, so nothing here reads a file:
only commands and the planner do (`peerd.config.loading`); other processes get the values (`peerd.config.section`).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from peerd.config.address import mask_url
from peerd.config.section import Section
from peerd.config.values import (
    AlertRateSetting,
    Arguments,
    BindAddresses,
    BucketName,
    CommandLine,
    Concurrency,
    ConvertBefore,
    Count,
    DatabaseUrl,
    Duration,
    EntryPoint,
    EntryPoints,
    FileMode,
    FilePath,
    Folders,
    HeaderName,
    HookUrl,
    HostName,
    HostNames,
    JobSize,
    KindNames,
    MailServer,
    MaskedKeys,
    Name,
    ObjectPrefix,
    ObjectStoreUrl,
    Period,
    PeriodOrNone,
    Processors,
    Proxies,
    QueueName,
    QueueNames,
    SeriesAge,
    Size,
    SmallCount,
    Text,
    Texts,
    TimeToRun,
    Token,
    lower,
    to_tuple,
)
from peerd.domain.access import Role
from peerd.domain.alert import AlertKind, AlertRate

LineLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], ConvertBefore(lower)]
DEFAULT_BUFFER: Final = 1_048_576
"""Bytes that are buffered for a connection of a gateway."""


class NodeSettings(Section, frozen=True, kw_only=True):
    """[node]: this machine, or this one of several nodes on it."""

    name: Name = field(default_factory=socket.gethostname)
    address: Annotated[Text, Meta(max_length=255)] | None = None
    zone: Annotated[Text, Meta(max_length=100)] | None = None
    run_directory: FilePath = Path(".peerd")
    grace: Duration = 30.0
    shutdown_interval: Period = 1.0
    heartbeat_every: Period = 2.0
    silent_after: Period = 60.0
    environment: Annotated[Text, Meta(max_length=100)] | None = None  # such as "production", for schedules


class DatabaseSettings(Section, frozen=True, kw_only=True):
    """[database]: where the table is. `url` holds the password, which representations mask."""

    url: DatabaseUrl = "sqlite:///peerd.sqlite"
    password_file: FilePath | None = None
    pool_size: SmallCount = 4

    @property
    def masked_url(self) -> str:
        """The address with its password masked."""
        return mask_url(self.url)

    def _masked(self, name: str, value: Any) -> Any:
        return self.masked_url if name == "url" else value


class ClusterSettings(Section, frozen=True, kw_only=True):
    """[cluster]: the secret that all nodes share, and where this one listens for the doorbell."""

    secret: Annotated[Text, Meta(min_length=16, max_length=1000)] | None = None
    secret_file: FilePath | None = None
    bind: Annotated[Text, Meta(max_length=255)] | None = None  # None: every address; on SQLite, loopback
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0  # of UDP; 0: a free one


class WorkSettings(Section, frozen=True, kw_only=True):
    """How a worker works: attributes of its class, which the keys of the same names in [workers.NAME] override."""

    queues: QueueNames = ()  # (): those of the code
    count: Concurrency = 1  # tasks at once in each process
    max_attempts: Count = 3  # where neither row nor handler says
    delay_ratio: Duration = 300.0  # the delay before a retry is attempts × this
    unknown_after: Duration = 3600.0  # a task is dead whose handler no process of the cluster has known for this time
    update: Period = 3.0  # between two touches of a running task
    sleep: Duration = 1.0  # between two loops
    poll_every: Period = 1.0  # at most, when there is nothing to do
    rung_poll_every: Period = 10.0  # the same, while the doorbell is known to work
    timeout: Period | None = None  # of one attempt, where neither row nor handler says
    timeout_grace: Duration = 30.0  # after it; a handler that has not returned then ends with its process
    hook_timeout: Period = 30.0  # of the hooks before an attempt, and of those after it
    recycle_after: Count | None = None  # tasks
    recycle_age: Period | None = None
    recycle_memory: Size | None = None
    recycle_cpu: Processors | None = None
    drain_timeout: Period | None = None  # of a recycled process; None: as long as its tasks take
    log_lines: bool = True  # keep what handlers log with their attempts
    log_level: LineLevel = "info"  # the least level that is kept
    options: Mapping[str, Any] = field(default_factory=dict)  # the user's own


class WorkerSettings(WorkSettings, frozen=True, kw_only=True):
    """[workers.NAME]: processes of one kind that run a user's code. Exactly one of `tasks` and `worker` is given."""

    tasks: EntryPoints | None = None
    worker: EntryPoint | None = None
    enabled: bool = True
    processes: SmallCount = 1
    grace: Duration | None = None  # None: the node's
    hang_after: Period | None = None  # None: the event loop may be blocked for any time
    given: tuple[str, ...] = ()  # not a key: names of the given keys, which override attributes of the class


class ProcessSettings(Section, frozen=True, kw_only=True):
    """Processes of one kind."""

    enabled: bool = True
    processes: SmallCount = 1
    grace: Duration | None = None  # None: the node's
    recycle_memory: Size | None = None
    recycle_cpu: Processors | None = None


class CommandSettings(ProcessSettings, frozen=True, kw_only=True):
    """[commands.NAME]: any other program, supervised the same way."""

    command: CommandLine
    environment: Mapping[Text, Text] = field(default_factory=dict)


class ErrorSettings(Section, frozen=True, kw_only=True):
    """[errors]: a function of the user that is called with each error of the user's code."""

    hook: EntryPoint | None = None


class AgentSettings(Section, frozen=True, kw_only=True):
    """[agent]: code of the user that runs once on each machine."""

    setup: EntryPoint | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # the user's own


class MailSettings(Section, frozen=True, kw_only=True):
    """[alerts.NAME.mail]: the server, the sender and the recipients of mails."""

    server: MailServer
    sender: Text
    to: Annotated[tuple[Text, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
    tls: Literal["none", "starttls", "tls"] = "none"
    user: Text | None = None
    password_file: FilePath | None = None

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The host and the port of the server."""
        host, _, port = self.server.rpartition(":") if ":" in self.server else (self.server, "", "")
        return host, int(port or (465 if self.tls == "tls" else 25))


class AlertSettings(Section, frozen=True, kw_only=True):
    """[alerts.NAME]: a hook for alerts. Exactly one of `webhook`, `mail`, `command` and `log` is given."""

    webhook: HookUrl | None = None
    mail: MailSettings | None = None
    command: CommandLine | None = None
    log: bool = False
    on: Annotated[tuple[AlertKind, ...], Meta(min_length=1), ConvertBefore(to_tuple)] | None = None  # None: all
    at_most: AlertRateSetting = AlertRate(1, 300.0)  # of each kind
    enabled: bool = True


class ScheduleSettings(Section, frozen=True, kw_only=True):
    """[schedules.NAME]: a function or a task that runs periodically. Either `run` or `queue` is given."""

    run: EntryPoint | None = None  # a function, called in a worker process
    args: Arguments | None = None
    workers: KindNames | None = None  # whose processes may run it; None: all of [workers]
    queue: QueueName | None = None  # … or a task is enqueued
    task: Annotated[Text, Meta(max_length=200)] | None = None
    body: Any = None
    limit_key: Text | None = None
    type: Annotated[Text, Meta(max_length=200)] = "cluster"
    interval: Period | None = None
    cron: Text | None = None
    timezone: Text = "UTC"
    immediate: bool = False
    overlap: Literal["skip", "queue", "allow"] = "skip"
    misfire: Literal["skip", "run_once"] = "skip"
    misfire_grace: Duration = 60.0
    jitter: Duration = 0.0
    timeout: Period | None = None
    enabled: bool = True
    environments: Texts | None = None


class ServingSettings(ProcessSettings, frozen=True, kw_only=True):
    """Processes of one kind that serve on shared sockets."""

    bind: BindAddresses
    backlog: Count  # connections that wait to be accepted
    unix_mode: FileMode = 0o666
    reuse_port: bool = False
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None
    head_timeout: Period = 30.0
    body_timeout: Period = 30.0
    hang_after: PeriodOrNone = 60.0


class WebSettings(ServingSettings, frozen=True, kw_only=True):
    """[web.NAME]: processes that serve an ASGI app."""

    app: EntryPoint
    factory: bool = False  # the app is what calling `app` returns
    backlog: Count = 2048
    keep_alive: Period = 5.0  # of an idle connection
    concurrency: Count | None = None  # requests at once in each process
    max_head: Size = 65_536  # of a request's line and headers
    min_body_rate: Size = 500  # bytes per second of a request's body, over each body_timeout (Apache's default MinRate)
    max_message: Size = 16_777_216  # of a WebSocket
    root_path: Text = ""
    forwarded_allow_ips: Proxies = ()
    access_log: bool = False
    recycle_after: Count | None = None  # requests
    recycle_age: Period | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # the user's own


class GatewaySettings(ServingSettings, frozen=True, kw_only=True):
    """[gateway.NAME]: processes that serve queue clients, in two protocols."""

    bind: BindAddresses = ("127.0.0.1:11300",)
    protocols: Annotated[tuple[Literal["beanstalk", "json"], ...], Meta(min_length=1), ConvertBefore(to_tuple)] = (
        "beanstalk",
        "json",
    )  # both on one port: the first byte decides
    drain_timeout: Period | None = None  # of a process that is replaced; None: as long as its clients stay connected
    backlog: Count = 1024
    token: Token | None = None
    token_file: FilePath | None = None
    allow_unauthenticated: bool = False
    max_job_size: JobSize = 65_535  # of a body; of the JSON protocol, as its text is sent
    max_connections: Count = 16_384  # of each process
    max_buffered: Size | None = None  # of a connection; None: 1 MiB, or two of the largest jobs
    max_buffered_total: Size = 268_435_456  # of a process
    default_ttr: TimeToRun = 60.0  # of a reservation of a job that has none of its own

    @property
    def max_buffered_bytes(self) -> int:
        """The bytes that a connection may have buffered: of a command that is incomplete, and of unsent replies."""
        return self.max_buffered or max(DEFAULT_BUFFER, 2 * self.max_job_size)


class QueueSettings(Section, frozen=True, kw_only=True):
    """[queues.NAME]: what holds for all tasks of a queue. Every node should have the same."""

    history: Duration | None = None  # how long done tasks are kept; None: manager.max_completed
    expire_after: Period | None = None  # a client's job that was not reserved by then is deleted
    bury_after: Count | None = None  # releases and time-outs of a job
    max_jobs: Count | None = None  # unfinished tasks; queue clients are refused further ones


class ManagerSettings(Section, frozen=True, kw_only=True):
    """[manager]: the periods of the chores."""

    every: Period = 1.0
    max_update: Period = 30.0
    max_completed: Duration = 3_600.0
    max_failed: Duration = 259_200.0
    inactive_after: Period = 4.0  # if not given: two heartbeats
    pinned_policy: Literal["wait", "move", "fail"] = "wait"
    pinned_after: Duration = 600.0
    batch: Annotated[int, Meta(ge=1, le=500)] = 500
    max_runs: Count = 1000  # of each schedule
    max_run_age: Duration = 2_592_000.0
    max_line_age: Duration = 604_800.0  # of log lines of tasks that are still there
    max_node_age: Duration = 604_800.0
    max_wait: Period = 3_600.0
    max_audit_age: Duration = 7_776_000.0
    max_bulk_age: Duration = 604_800.0  # since a bulk action ended
    max_alerts: Count = 10_000
    max_alert_age: Duration = 2_592_000.0  # since an alert was seen last


class ObjectStoreSettings(Section, frozen=True, kw_only=True):
    """`[storage.object_stores.NAME]`: a part of a bucket in an S3-compatible object store, as a disk."""

    bucket: BucketName  # which exists
    endpoint: ObjectStoreUrl | None = None  # of the object store; None: Amazon's in the region
    prefix: ObjectPrefix = ""  # that the names of all objects begin with
    region: Annotated[Text, Meta(max_length=64)] = "us-east-1"
    credentials_file: FilePath | None = None  # in the format of the AWS CLI, [default]; None: AWS_ACCESS_KEY_ID, …
    capacity: Size = 1_000_000_000_000  # bytes that may be stored
    verify_every: Duration = 15_552_000.0  # every copy is read and verified within it; 0: never


class StorageSettings(Section, frozen=True, kw_only=True):
    """`[storage]`: files that survive their servers. With disks, the node serves, copies and verifies files."""

    disks: Folders = ()
    object_stores: Mapping[Name, ObjectStoreSettings] = field(default_factory=dict)
    bind: BindAddresses = ("127.0.0.1:7480",)
    address: Text | None = None  # host:port, or a URL, at which other nodes reach this one; None: the bind address
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None
    reserve: Annotated[float, Meta(ge=0, lt=1)] = 0.05  # share of each disk that stays free
    grace: Period = 900.0  # of silence, after which the copies of a disk are made elsewhere
    server_processes: SmallCount = 1  # that serve files
    copies_at_once: Concurrency = 2
    rate: Size | None = None  # bytes per second of one copy or verification
    scrub_every: Period = 2_592_000.0  # every copy is read and verified within it
    durable_within: Period = 60.0  # a put waits for the copies that its class wants before it is acknowledged
    s3: bool = False  # the server answers requests of S3's clients too
    s3_domain: HostName | None = None  # below which host names begin with a bucket


class AccessSettings(Section, frozen=True, kw_only=True):
    """[access]: what the API accepts as a login, and what nothing shows. Every node should have the same."""

    allowed_hosts: HostNames = ()  # names in the Host header, beside those of this machine
    session_idle: Period = 43_200.0
    session_age: Period = 604_800.0
    proxy_user_header: HeaderName | None = None  # a trusted proxy names the user in it
    proxy_role: Role | None = None  # of such users that are not in the table; None: they are refused
    preview_folders: Folders = ()  # pages show images and videos below these, which results name
    mask: MaskedKeys = ()  # keys whose values are masked in bodies, results, errors and the audit log


class StatisticsSettings(Section, frozen=True, kw_only=True):
    """[statistics]: the time series of attempts and of waiting tasks. Every node should have the same."""

    enabled: bool = True  # false: attempts are not counted, and nothing is written; queues are examined for alerts only
    keep_minutes: SeriesAge = 86_400.0  # buckets of a minute, and samples of the queues
    keep_ten_minutes: SeriesAge = 604_800.0
    keep_hours: SeriesAge = 7_776_000.0


class LoggingSettings(Section, frozen=True, kw_only=True):
    """[logging]: the level, the format and the file of the log."""

    level: Annotated[Literal["debug", "info", "warning", "error"], ConvertBefore(lower)] = "info"
    format: Literal["console", "json"] = "console"
    file: FilePath | None = None  # None: of `peerd start`, peerd.log in the run directory; of `peerd up`, none
    max_size: Size = 50_000_000  # at which the file is rotated; 0: never
    keep: SmallCount = 5  # rotated files


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """[telemetry]: what the processes measure, and where traces go."""

    metrics: bool = True
    opentelemetry: bool = False  # spans of tasks; the exporter's settings are the environment's OTEL_…


class Document(Section, frozen=True, kw_only=True):
    """The tables of peerd.toml."""

    node: NodeSettings = field(default_factory=NodeSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    workers: Mapping[Name, WorkerSettings] = field(default_factory=dict)
    web: Mapping[Name, WebSettings] = field(default_factory=dict)
    gateway: Mapping[Name, GatewaySettings] = field(default_factory=dict)
    queues: Mapping[QueueName, QueueSettings] = field(default_factory=dict)
    commands: Mapping[Name, CommandSettings] = field(default_factory=dict)
    agent: AgentSettings = field(default_factory=AgentSettings)
    schedules: Mapping[Name, ScheduleSettings] = field(default_factory=dict)
    manager: ManagerSettings = field(default_factory=ManagerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    statistics: StatisticsSettings = field(default_factory=StatisticsSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    alerts: Mapping[Name, AlertSettings] = field(default_factory=dict)
    errors: ErrorSettings = field(default_factory=ErrorSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)


class Settings(Document, frozen=True, kw_only=True):
    """All settings, and where peerd.toml is. Paths are absolute when they come from `load`."""

    project_directory: Path
    file: Path | None = None

    @property
    def log_file(self) -> Path:
        """The log of a node that runs in the background."""
        return self.logging.file or self.node.run_directory / "peerd.log"
