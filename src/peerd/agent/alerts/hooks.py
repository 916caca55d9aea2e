"""Hooks: they send an alert to the log, a web server, a mail server or a command.

A hook raises a readable error when it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from peerd.config.settings import AlertSettings, MailSettings
from peerd.domain.alert import Alert
from peerd.domain.errors import PeerdError
from peerd.runtime.launch import launch_command
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import alert_raised

if TYPE_CHECKING:
    from email.message import EmailMessage
    from smtplib import SMTP

RESPONSE_WITHIN: Final = 10.0
"""Seconds that a web or mail server may take for each of its answers."""
COMMAND_WITHIN: Final = 30.0
"""Seconds that a command may run."""
MAX_STDERR_CHARACTERS: Final = 500
"""Characters of a command's stderr in the error."""
MAX_SUBJECT_CHARACTERS: Final = 900
"""Characters of a mail's subject line."""


class AlertHookFailed(PeerdError):
    """A hook did not take an alert; the text says why."""


class AlertHook(Protocol):
    """Sends alerts."""

    async def send(self, alert: Alert) -> None:
        """Send one; any exception means that it was not sent."""
        ...


def make_hook(settings: AlertSettings, folder: Path, events: EventBus) -> AlertHook:
    """The hook of a section [alerts.NAME]; commands are started in the folder, which is the project's."""
    if settings.webhook is not None:
        return Webhook(settings.webhook)
    if settings.mail is not None:
        return MailHook(settings.mail)
    if settings.command is not None:
        return CommandHook(settings.command, folder)
    return LogHook(events)


class LogHook:
    """A line of the agent's log."""

    def __init__(self, events: EventBus) -> None:
        self._events = events

    async def send(self, alert: Alert) -> None:
        self._events.emit(alert_raised(alert.alert, alert.sentence, alert.slot))


class Webhook:
    """A POST of the alert as JSON, whose `text` chat programs show. The URL may hold a secret, and is never shown."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def send(self, alert: Alert) -> None:
        """Post it; any answer but 2xx is a failure."""
        await asyncio.to_thread(self._post, alert_json(alert))

    def _post(self, body: bytes) -> None:
        import urllib.error  # noqa: PLC0415 - few agents send web requests
        import urllib.request  # noqa: PLC0415

        request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
            self._url, body, {"Content-Type": "application/json", "User-Agent": "peerd"}
        )
        try:
            with urllib.request.urlopen(request, timeout=RESPONSE_WITHIN) as response:  # noqa: S310 - as above
                response.read(4096)
        except urllib.error.HTTPError as error:
            error.close()
            raise AlertHookFailed(f"the server answered {error.code} {error.reason}") from None


class MailHook:
    """A mail. The password file is read each time that one is sent."""

    def __init__(self, settings: MailSettings) -> None:
        self._settings = settings

    async def send(self, alert: Alert) -> None:
        """Hand it to the mail server."""
        await asyncio.to_thread(self._send, self._message(alert))

    def _message(self, alert: Alert) -> EmailMessage:
        from email.message import EmailMessage  # noqa: PLC0415 - few agents send mails

        message = EmailMessage()
        first_line = " ".join(alert.text.split())
        message["Subject"] = f"[peerd {alert.node}] {alert.alert}: {first_line}"[:MAX_SUBJECT_CHARACTERS]
        message["From"] = self._settings.sender
        message["To"] = ", ".join(self._settings.to)
        lines = [alert.sentence, "", f"node: {alert.node}", f"at: {alert.at.isoformat()}"]
        if alert.slot:
            lines.append(f"process: {alert.slot} ({alert.pid})" if alert.pid else f"process: {alert.slot}")
        message.set_content("\n".join(lines) + "\n")
        return message

    def _send(self, message: EmailMessage) -> None:
        import ssl  # noqa: PLC0415 - few agents send mails

        settings = self._settings
        with self._connect() as server:
            if settings.tls == "starttls":
                server.starttls(context=ssl.create_default_context())
            if settings.user is not None:
                file = settings.password_file
                server.login(settings.user, file.read_text(encoding="utf-8").rstrip("\r\n") if file else "")
            server.send_message(message)

    def _connect(self) -> SMTP:
        import smtplib  # noqa: PLC0415 - few agents send mails
        import ssl  # noqa: PLC0415

        host, port = self._settings.host_and_port
        if self._settings.tls == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=RESPONSE_WITHIN, context=ssl.create_default_context())
        return smtplib.SMTP(host, port, timeout=RESPONSE_WITHIN)


@dataclass(eq=False)
class CommandHook:
    """Any program, with the alert as JSON on its standard input."""

    argv: Sequence[str]
    """The program and its arguments; no shell reads them."""
    folder: Path
    """In which it is started."""

    async def send(self, alert: Alert) -> None:
        """Start it, and wait for its end; any status but 0 is a failure."""
        process = await asyncio.create_subprocess_exec(
            *launch_command(self.argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, "PEERD_ALERT": alert.alert},
        )
        try:
            async with asyncio.timeout(COMMAND_WITHIN):
                _, stderr = await process.communicate(alert_json(alert))
        except TimeoutError:
            raise AlertHookFailed(f"{self.argv[0]} took more than {COMMAND_WITHIN:g} s, and was killed") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            message = stderr.decode(errors="replace").strip()[-MAX_STDERR_CHARACTERS:]
            raise AlertHookFailed(f"{self.argv[0]} ended with status {process.returncode}: {message}".rstrip(": "))


def alert_json(alert: Alert) -> bytes:
    """An alert as programs get it."""
    return msgspec.json.encode({**msgspec.to_builtins(alert), "text": alert.sentence})
