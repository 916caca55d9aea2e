"""``peerd init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from rich.console import Group
from rich.text import Text
from typer import Argument

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError
from peerd.cli.output import sanitize
from peerd.config.loading import FILE_NAME

TEMPLATE: Final = """\
# The settings of this peerd node. What is commented out shows the default. docs/configuration.md has all keys.
# Durations: seconds, or text such as "500ms", "10s", "5m", "1h30m", "3d". Sizes: "500MB", "1GiB".
# `peerd check` lists every mistake in this file.

[node]
# name = "video-1"            # unique in the cluster; default: the host name
# address = "10.0.0.7"        # where other nodes reach this one
# zone = "rack-a"             # nodes of one zone may fail together
# grace = "30s"               # how long running tasks may take to finish when the node stops

[database]
# url = "sqlite:///peerd.sqlite"         # one machine; relative to this file
# url = "mysql://peerd@db/peerd"         # a cluster, on MariaDB or MySQL
# url = "postgresql://peerd@db/peerd"    # a cluster, on PostgreSQL
# password_file = "database.password"    # or put the whole address into PEERD_DATABASE_URL

# The doorbell wakes the nodes when tasks are committed. On MariaDB and MySQL it needs a secret, the same on every node.
[cluster]
# secret_file = "cluster.secret"         # made by: head -c 32 /dev/urandom | base64
# port = 0                    # of UDP; name one where a firewall stands between the nodes

# A worker of tasks: a queue with its handlers, in a module that Python finds from this folder.
# [workers.video]
# tasks = "studio.jobs:video"
# processes = 2               # processes of this worker
# count = 4                   # tasks at once in each of them
# max_attempts = 3
# delay_ratio = "5m"          # a retry waits for attempts × this
# timeout = "2h"              # of one attempt; default: none

# A worker that loops by itself: a Worker or TaskWorker class.
# [workers.cleanup]
# worker = "studio.jobs:Cleanup"
# sleep = "1m"                # between two loops

# Code that each machine has once, such as a connection that its processes share.
# [agent]
# setup = "studio.agent:setup"

# Alerts for people: by a webhook, mail, a command, or the log.
# [alerts.chat]
# webhook = "https://chat.example/hooks/secret"
# at_most = "1 per 5m"        # of each kind

# Schedules: a function is called in a worker process, or a task is enqueued.
# [schedules.refresh]
# run = "studio.jobs:refresh"
# interval = "10s"            # or cron = "0 3 * * *", with timezone = "Europe/Berlin"
# type = "worker"             # on each node; default: "cluster", once in the whole cluster

# A gateway: clients of beanstalkd, and of the JSON protocol, put jobs into queues and reserve them.
# [gateway.queue]
# bind = "127.0.0.1:11300"    # other machines: give a token_file, or tls_certificate and tls_key, too
# default_ttr = "1m"          # of the reservation of a task that was not put by a client

# Pages and the REST API; pip install 'peerd[dashboard]', then: peerd users add NAME --role admin
# [web.dashboard]
# app = "peerd.web:app"
# bind = "127.0.0.1:8080"

# What the API accepts as a login, and what nothing shows; every node the same.
# [access]
# allowed_hosts = ["jobs.example.com"]     # names of the pages' address, beside those of this machine
# mask = ["password"]         # keys whose values are hidden in bodies, results, errors and the audit log

# Files with copies on several nodes; pip install 'peerd[storage]'. After a start: peerd files disks add /srv/disk-1
# [storage]
# disks = ["/srv/disk-1"]     # empty folders, each the root of a file system
# bind = "127.0.0.1:7480"     # where other nodes read contents

# What holds for one queue, the same on every node.
# [queues.mails]
# history = "7d"              # how long done tasks are kept; default: manager.max_completed
# max_jobs = 100000           # unfinished ones; queue clients are refused more

[manager]
# max_completed = "1h"        # how long done tasks are kept
# max_failed = "3d"           # how long dead tasks are kept

# Time series of what the workers do; every node the same.
[statistics]
# enabled = true

[logging]
# level = "info"              # debug, info, warning or error
# format = "console"          # or json
# file = "/var/log/peerd/video-1.log"    # default: of peerd start, .peerd/<name>/peerd.log

[telemetry]
# metrics = true              # counts for Prometheus
# opentelemetry = false       # spans of tasks; pip install 'peerd[otel]'
"""
"""Each setting in a comment is valid as it stands."""


app = new_app()

EXAMPLE_NAME: Final = "jobs.py"
EXAMPLE: Final = '''\
"""Background work of this project. peerd.toml names the queue: tasks = "jobs:hello"."""

import asyncio

from peerd import Context, Queue

hello = Queue("hello")


@hello.task
async def greet(ctx: Context, name: str, seconds: int = 5) -> dict[str, str]:
    """Take a while to say hello; watch it with `peerd tasks watch`."""
    for step in range(seconds):
        await ctx.progress(step / seconds, f"thinking about {name}")
        await asyncio.sleep(1)
    return {"greeting": f"Hello, {name}!"}
'''
GITIGNORE: Final = """\
# Files of peerd: the run directory with the log, and the embedded database.
.peerd/
*.sqlite
*.sqlite-shm
*.sqlite-wal
# Secret files.
*.password
*.secret
"""
WORKER_SECTION: Final = """\
[workers.hello]
tasks = "jobs:hello"
count = 4                     # tasks at once in each process

"""
NEXT_STEPS: Final = (
    ("peerd check", "check the configuration; if it names a database server, first: peerd migrate"),
    ("peerd up", "start this node; then, in another terminal:"),
    ("""peerd enqueue hello greet '{"name": "you"}'""", "enqueue a task"),
    ("peerd tasks watch", "watch it run"),
    ("peerd tasks list", "see its outcome"),
)


@command(app, of_this_machine=True)
def init(
    context: CommandContext,
    folder: Annotated[Path, Argument(help="The project's folder; it is created if needed.")] = Path(),
) -> None:
    """Create a project: write peerd.toml and an example module.

    A .gitignore is written if there is none. No file is overwritten.
    """
    before, manager, after = TEMPLATE.partition("[manager]")
    files = {folder / FILE_NAME: f"{before}{WORKER_SECTION}{manager}{after}", folder / EXAMPLE_NAME: EXAMPLE}
    if existing := [path for path in files if path.exists()]:
        verb = "exists" if len(existing) == 1 else "exist"
        message = f"{' and '.join(map(str, existing))} {verb} already; nothing was written"
        raise CommandError(message, "use another folder: peerd init FOLDER")
    if not (folder / ".gitignore").exists():
        files[folder / ".gitignore"] = GITIGNORE
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    context.print_result({"written": list(files)}, _render_next_steps(list(files), folder))


def _render_next_steps(written: list[Path], folder: Path) -> Group:
    steps = [(f"cd {folder}", ""), *NEXT_STEPS] if folder != Path() else NEXT_STEPS
    width = max(len(step) for step, _ in steps)
    return Group(
        *[Text.assemble(("written ", "green"), sanitize(str(path))) for path in written],
        Text("\nnext:"),
        *[Text.assemble("  ", (step.ljust(width), "bold"), "  ", (why, "bright_black")) for step, why in steps],
    )
