"""Configurations that are refused: below each line, as a comment, what is reported for it, with the remedy."""

from __future__ import annotations

from textwrap import dedent

from tests.support.rows import rows
from tests.unit.config.conftest import Write, problems

REFUSED = {
    "every error is reported at once with its line and remedy": """
        [node]
        nmae = "video-1"
        # node.nmae: unknown key; did you mean 'name'?
        grace = "soon"
        # node.grace: 'soon' is not a duration: give seconds, or text such as '500ms', '10s', '1h30m', '3d'
        [worker.video]
        # worker: unknown table; did you mean 'workers'?
        [workers.video]
        tasks = "studio.jobs:video"
        worker = "studio.jobs:Video"
        # workers.video.worker: a worker has tasks or worker, not both; keep one of them
        count = "4"
        # workers.video.count: must be a whole number; this is text
        procesess = 2
        # workers.video.procesess: unknown key; did you mean 'processes'?
        [workers.audio]
        # workers.audio: has nothing to run; name a queue, tasks = "studio.jobs:video", or a class, worker = …
        enabled = "yes"
        # workers.audio.enabled: must be true or false; this is text
        [workers.manager]
        # workers.manager: is the name of a process of peerd's own; choose another name
        worker = "studio"
        # workers.manager.worker: 'studio' names no object: write 'module:name', for example 'studio.jobs:video'
        [workers."bad name"]
        # workers.bad name: is not a name; use up to 191 letters, digits, '.', '_' and '-', a letter or digit first
        tasks = []
        # workers.bad name.tasks: must not be empty
        [manager]
        batch = 5000
        # manager.batch: must be at most 500
        pinned_policy = "moove"
        # manager.pinned_policy: must be 'wait', 'move' or 'fail'
        [database]
        url = "redis://:secret@db/0"
        # database.url: redis:// is no database that peerd knows: write mysql://user@host/name, …
        [web.api]
        # web.api.bind: must be given
        app = "peerd.web:app"
        [logging]
        level = 3
        # logging.level: must be 'debug', 'info', 'warning' or 'error'
    """,
    "a text or list of a wrong length is refused with the limit": """
        [node]
        zone = "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
        # node.zone: must have at most 100 characters
        [web.a]
        app = "a:b"
        bind = ["systemd:a", "systemd:b", "systemd:c", "systemd:d", "systemd:e", "systemd:f", "systemd:g", "systemd:h",
        # web.a.bind: lists more than 20
            ":1", ":2", ":3", ":4", ":5", ":6", ":7", ":8", ":9", ":10", ":11", ":12", ":13"]
    """,
    "contradictions are reported beside a wrong value and not for its default": """
        [workers.a]
        tasks = "a:b"
        update = "1m"
        # workers.a.update: running tasks are touched every 1m, but are taken away 30s after their last touch; give …
        [workers.b]
        tasks = "a:b"
        [manager]
        inactive_after = "1s"
        # manager.inactive_after: 1s is no longer than a heartbeat (2s): every node would be called inactive; give at …
        [schedules.late]
        run = "a:b"
        interval = "of course"
        # schedules.late.interval: 'of course' is not a duration: give seconds, or text such as '500ms', '10s', …
        workers = ["b", "c"]
        # schedules.late.workers: there is no [workers.c]; there are: a, b
    """,
    "nothing is said about what a wrong value would contradict": """
        [workers.a]
        tasks = "a:b"
        update = "1m"
        [manager]
        max_update = "long"
        # manager.max_update: 'long' is not a duration: …
    """,
    "a command is a list and its name its own": """
        [workers.video]
        tasks = "studio:video"
        [commands.video]
        # commands.video: [workers.video] has this name; choose another name
        command = "ssh -N storage"
        # commands.video.command: is a text; write the program and its arguments as a list, no shell reads them
        [commands.agent]
        # commands.agent: is the name of a process of peerd's own; choose another name
        command = []
        # commands.agent.command: must not be empty
        [commands.tunnel]
        command = ["ssh", "-N", "storage"]
    """,
    "a header that names the user is taken from known proxies only": """
        [web.dashboard]
        app = "peerd.web:app"
        bind = "127.0.0.1:8080"
        forwarded_allow_ips = "*"
        # web.dashboard.forwarded_allow_ips: every program that connects could name any user in [access] …
        [access]
        proxy_user_header = "X-Remote-User"
    """,
    "every error of a web section is reported": """
        [workers.video]
        tasks = "studio:video"
        [web.video]
        # web.video: [workers.video] has this name; choose another name
        app = "studio.site"
        # web.video.app: 'studio.site' names no object: write 'module:name', for example 'studio.jobs:video'
        bind = ["8080", ":80", ":80"]
        # web.video.bind: '8080' names no port; write "127.0.0.1:8080", ":8080" for every IPv4 address, "[::]:8080" …
        unix_mode = 660
        # web.video.unix_mode: is no file mode: write '0660', or 0o660
        hang_after = "never"
        # web.video.hang_after: 'never' is not a duration: give seconds, or text such as '500ms', '10s', '1h30m', '3d'
        [web.site]
        app = "studio.site:app"
        bind = ["[::1]:80", "unix:site.sock"]
        unix_mode = "rw"
        # web.site.unix_mode: 'rw' is no file mode: write it as chmod reads it, for example '0660'
    """,
    "a hook has exactly one channel and valid settings": """
        [alerts.both]
        # alerts.both: has webhook and log; give exactly one of webhook, mail, command and log = true
        webhook = "ftp://chat.example"
        # alerts.both.webhook: must be an address that begins with http:// or https://
        log = true
        [alerts.none]
        # alerts.none: has no way out; give exactly one of webhook, mail, command and log = true
        on = ["dead-tasks", "bad-weather"]
        # alerts.none.on: must be 'crash-loop', …
        at_most = "often"
        # alerts.none.at_most: 'often' is no rate: write a number and a time, such as '1 per 5m'
        [alerts.office.mail]
        server = "mail.example:smtp"
        # alerts.office.mail.server: 'mail.example:smtp' is no mail server: write 'host' or 'host:port'
        sneder = "peerd@studio.example"
        # alerts.office.mail.sneder: unknown key; did you mean 'sender'?
        sender = "peerd@studio.example"
        to = "ops@studio.example"
    """,
    "every error of a gateway is reported": """
        [gateway.queue]
        bind = "11300"
        # gateway.queue.bind: '11300' names no port; write "127.0.0.1:8080", ":8080" for every IPv4 address, …
        protocols = ["beanstalk", "amqp"]
        # gateway.queue.protocols: must be 'beanstalk' or 'json'
        max_job_size = 0
        # gateway.queue.max_job_size: must be from 1 byte to 1GiB
        default_ttr = 0.5
        # gateway.queue.default_ttr: must be from 1 to 4294967295 seconds, as beanstalkd has it
        token = "short"
        # gateway.queue.token: must be 16 to 200 printable ASCII characters without a space, so that a command can …
        [gateway.agent]
        # gateway.agent: is the name of a process of peerd's own; choose another name
        [queues."a b"]
        # queues.a b: 'a b' is no queue's name: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @
        [queues.mails]
        max_jobs = 0
        # queues.mails.max_jobs: must be at least 1
        histroy = "1h"
        # queues.mails.histroy: unknown key; did you mean 'history'?
    """,
    "a gateway and an app do not listen on one address": """
        [web.site]
        app = "a:b"
        bind = "[::1]:80"
        [gateway.site]
        # gateway.site: [web.site] has this name; choose another name
        bind = ["[0::1]:80", "unix:site"]
        # gateway.site.bind: [web.site] listens on [0::1]:80 too; choose another
    """,
    "a gateway has room for a job": """
        [gateway.queue]
        max_job_size = "1MB"
        max_buffered = "1MB"
        # gateway.queue.max_buffered: a job of max_job_size (1 MB) does not fit into it; give at least 1008192, or …
        [gateway.large]
        # gateway.large.max_buffered_total: one connection may have 2.15 GB; give at least 2147483648
        bind = "127.0.0.1:1"
        max_job_size = "1GiB"
    """,
    "each mistake of a schedule is reported": """
        [schedules.both]
        run = "a:b"
        # schedules.both.run: give run, a function, or queue, for a task to enqueue: one of them
        queue = "q"
        interval = "10s"
        [schedules.never]
        # schedules.never.interval: when does it tick? Give interval or cron, or immediate = true
        run = "a:b"
        [schedules.zone]
        run = "a:b"
        cron = "0 0 * * *"
        timezone = "Mars"
        # schedules.zone.timezone: 'Mars' is no time zone here; write a name such as 'Europe/Berlin'; the names are …
        [schedules.kind]
        run = "a:b"
        interval = 1
        workers = "audio"
        # schedules.kind.workers: there is no [workers.audio]; there are: none
        [schedules.nan]
        queue = "q"
        interval = 1
        body = {x = nan}
        # schedules.nan.body: holds inf or nan, which JSON does not have
    """,
}


def without_problems(annotated: str) -> tuple[str, list[str]]:
    """The configuration, and its expected problems; one that ends with … is the beginning of the reported one."""
    lines: list[str] = []
    expected: list[str] = []
    for line in dedent(annotated).strip().splitlines():
        if line.startswith("# "):
            expected.append(f"peerd.toml:{len(lines)}: {line.removeprefix('# ')}")
        else:
            lines.append(line)
    return "\n".join(lines), expected


@rows("rule, annotated", REFUSED.items())
def test_every_mistake_is_reported_at_once_with_its_line_and_remedy(rule: str, annotated: str, write: Write) -> None:
    text, expected = without_problems(annotated)
    found = problems(write(text))
    for number, problem in enumerate(expected[: len(found)]):
        if problem.endswith("…") and found[number].startswith(problem[:-1]):
            found[number] = problem
    assert found == expected, rule
