"""From the master's alerts to the hooks, which send them to the log, a web server, a mail server or a command.

Each hook has its own rate limit, queue and retries, and delays no other. A hook that fails raises an error for people.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from peerd.agent.alert_recorder import alert_of
from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.config.settings import AlertSettings, MailSettings
from peerd.domain.alert import Alert, AlertKind, AlertRateLimiter
from peerd.domain.errors import PeerdError
from peerd.domain.pacing import exponential_backoff
from peerd.runtime.observability.alert_detection import AlertPacer
from peerd.runtime.observability.events import AlertDeliveryFailed, EventBus
from peerd.runtime.observability.log_messages import alert_raised, alerts_dropped
from peerd.runtime.os_processes import launch_command
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.shell import ProcessShell

if TYPE_CHECKING:
    from email.message import EmailMessage


MAX_QUEUED: Final = 100
"""Alerts that wait for one hook; beyond it the oldest are dropped."""
MAX_TRIES: Final = 8
FIRST_PAUSE: Final = 1.0
"""Seconds; doubled after each try, so that the last is about two minutes after the first."""
FLUSH_WITHIN: Final = 2.0
"""Seconds that a stopping agent gives to the last alerts."""


class AlertDispatcher(Subsystem):
    """Offers the master's alerts to each enabled hook; commands are started in the project's folder."""

    def __init__(self, alerts: Mapping[str, AlertSettings], folder: Path) -> None:
        self._settings = {name: settings for name, settings in alerts.items() if settings.enabled}
        self._folder = folder
        self._deliveries: dict[str, AlertDelivery] = {}

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        """Start a component for each hook."""
        self._node = shell.link.node
        self._components = components
        for name, settings in self._settings.items():
            self._deliveries[f"alerts {name}"] = delivery = AlertDelivery(
                name,
                make_hook(settings, self._folder, shell.events),
                frozenset(AlertKind if settings.on is None else settings.on),
                AlertRateLimiter(settings.at_most),
                shell.events,
                asyncio.get_running_loop().time,
            )
            components.start(f"alerts {name}", delivery.run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Handle a message of type `alert`."""
        alert = alert_of(message, self._node)
        if alert is not None:
            for delivery in self._deliveries.values():
                delivery.offer(alert)

    async def stop(self, grace: float) -> None:
        """Send what is queued or suppressed, and end."""
        for delivery in self._deliveries.values():
            delivery.flush_suppressed()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WITHIN):
                for delivery in self._deliveries.values():
                    await delivery.wait_idle()
        if self._deliveries:
            await self._components.stop(self._deliveries, within=FLUSH_WITHIN)


@dataclass(eq=False)
class AlertDelivery:
    """Delivers alerts to one hook.

    Args:
        kinds: those that are sent.
        limit: how many of each kind are sent.
        clock: monotonic, in seconds.
    """

    name: str
    hook: AlertHook
    kinds: Container[str]
    limit: AlertRateLimiter
    events: EventBus
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[Alert] = asyncio.Queue(MAX_QUEUED)
        later = asyncio.get_running_loop().call_later
        self._pacer: AlertPacer[Alert] = AlertPacer(self.limit, self.clock, later, self._enqueue)
        self.flush_suppressed = self._pacer.flush
        self.wait_idle = self._queue.join
        """Waits until the queue is empty and nothing is being sent."""

    def offer(self, alert: Alert) -> None:
        """Queue an alert of the hook's kinds; beyond the rate, the latest follows later with the number of others."""
        if alert.alert in self.kinds or alert.alert == AlertKind.TEST:
            self._pacer.offer(alert.alert, lambda _: alert)

    def _enqueue(self, alert: Alert, suppressed: int) -> None:
        if self._queue.full():
            self._queue.get_nowait()
            self._queue.task_done()
            self.events.emit(alerts_dropped(self.name, count=1))
        self._queue.put_nowait(msgspec.structs.replace(alert, suppressed=alert.suppressed + suppressed))

    async def run(self) -> None:
        """Deliver one alert after the other, until cancelled."""
        while True:
            await self._deliver(await self._queue.get())
            self._queue.task_done()

    async def _deliver(self, alert: Alert) -> None:
        for number in range(1, MAX_TRIES + 1):
            pause = exponential_backoff(number, base=FIRST_PAUSE) if number < MAX_TRIES else None
            try:
                await self.hook(alert)
                return
            except Exception as error:  # noqa: BLE001 - a server or a program may cause any error
                text = describe_exception(error)
            self.events.emit(AlertDeliveryFailed(hook=self.name, alert=alert.alert, error=text, again_in=pause))
            await asyncio.sleep(pause or 0.0)


# ---------------------------------------------------------------- hooks


RESPONSE_WITHIN: Final = 10.0
"""Seconds that a web or mail server may take for each of its answers."""
COMMAND_WITHIN: Final = 30.0
"""Seconds that a command may run."""
MAX_STDERR_CHARACTERS: Final = 500  # of a command's stderr in the error
MAX_SUBJECT_CHARACTERS: Final = 900  # of a mail's subject line


class AlertHookFailed(PeerdError):
    """A hook did not take an alert; the text says why."""


AlertHook = Callable[[Alert], Awaitable[None]]
"""Sends an alert; any exception means that it was not sent."""


def make_hook(settings: AlertSettings, folder: Path, events: EventBus) -> AlertHook:
    """The hook of a section [alerts.NAME]; commands are started in the folder, which is the project's."""
    if settings.webhook is not None:
        return partial(post_alert, settings.webhook)
    if settings.mail is not None:
        return partial(mail_alert, settings.mail)
    if settings.command is not None:
        return partial(run_alert_command, settings.command, folder)
    return partial(log_alert, events)


async def log_alert(events: EventBus, alert: Alert) -> None:
    """Write a line into the agent's log."""
    events.emit(alert_raised(alert.alert, alert.sentence, alert.slot))


async def post_alert(url: str, alert: Alert) -> None:
    """Post the alert as JSON, whose `text` chat programs show; any answer but 2xx is a failure.

    The URL may hold a secret, and is never shown.
    """
    await asyncio.to_thread(_post, url, alert_json(alert))


def _post(url: str, body: bytes) -> None:
    import urllib.error  # noqa: PLC0415 - few agents send web requests
    import urllib.request  # noqa: PLC0415

    request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
        url, body, {"Content-Type": "application/json", "User-Agent": "peerd"}
    )
    try:
        with urllib.request.urlopen(request, timeout=RESPONSE_WITHIN) as response:  # noqa: S310 - as above
            response.read(4096)
    except urllib.error.HTTPError as error:
        error.close()
        raise AlertHookFailed(f"the server answered {error.code} {error.reason}") from None


async def mail_alert(settings: MailSettings, alert: Alert) -> None:
    """Hand a mail to the mail server; the password file is read each time."""
    await asyncio.to_thread(_send_mail, settings, alert)


def _send_mail(settings: MailSettings, alert: Alert) -> None:
    import smtplib  # noqa: PLC0415 - few agents send mails
    import ssl  # noqa: PLC0415

    host, port = settings.host_and_port
    server = (
        smtplib.SMTP_SSL(host, port, timeout=RESPONSE_WITHIN, context=ssl.create_default_context())
        if settings.tls == "tls"
        else smtplib.SMTP(host, port, timeout=RESPONSE_WITHIN)
    )
    with server:
        if settings.tls == "starttls":
            server.starttls(context=ssl.create_default_context())
        if settings.user is not None:
            file = settings.password_file
            server.login(settings.user, file.read_text(encoding="utf-8").rstrip("\r\n") if file else "")
        server.send_message(_mail_of(settings, alert))


def _mail_of(settings: MailSettings, alert: Alert) -> EmailMessage:
    from email.message import EmailMessage  # noqa: PLC0415 - few agents send mails

    message = EmailMessage()
    first_line = " ".join(alert.text.split())
    message["Subject"] = f"[peerd {alert.node}] {alert.alert}: {first_line}"[:MAX_SUBJECT_CHARACTERS]
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.to)
    lines = [alert.sentence, "", f"node: {alert.node}", f"at: {alert.at.isoformat()}"]
    if alert.slot:
        lines.append(f"process: {alert.slot} ({alert.pid})" if alert.pid else f"process: {alert.slot}")
    message.set_content("\n".join(lines) + "\n")
    return message


async def run_alert_command(argv: Sequence[str], folder: Path, alert: Alert) -> None:
    """Start a program in a folder, with the alert as JSON on its standard input; any status but 0 is a failure.

    Args:
        argv: the program and its arguments; no shell reads them.
        folder: where it is started.
        alert: what it gets.
    """
    process = await asyncio.create_subprocess_exec(
        *launch_command(argv),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PEERD_ALERT": alert.alert},
    )
    try:
        async with asyncio.timeout(COMMAND_WITHIN):
            _, stderr = await process.communicate(alert_json(alert))
    except TimeoutError:
        raise AlertHookFailed(f"{argv[0]} took more than {COMMAND_WITHIN:g} s, and was killed") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        message = stderr.decode(errors="replace").strip()[-MAX_STDERR_CHARACTERS:]
        raise AlertHookFailed(f"{argv[0]} ended with status {process.returncode}: {message}".rstrip(": "))


def alert_json(alert: Alert) -> bytes:
    """An alert as programs get it."""
    return msgspec.json.encode({**msgspec.to_builtins(alert), "text": alert.sentence})
