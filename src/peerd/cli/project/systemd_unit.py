"""The systemd unit of a node, as a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from peerd.runtime.process import exit_codes

STOP_MARGIN: Final = 30.0
"""Seconds that a stop may take after the grace: giving back, the agent's turn, and the margins of both."""
START_TIMEOUT: Final = 180.0
"""Seconds: the agent has a minute for its boot, and then all others have one."""
WATCHDOG_INTERVAL: Final = 30.0

_SYSTEM_ONLY: Final = """\
# What may break ffmpeg, its hardware encoders (PrivateDevices, ProtectClock, MemoryDenyWriteExecute) or your own code
# (ProtectHome, ProtectSystem=strict) is left out. Where nothing is encoded on hardware, PrivateDevices=yes is right.
ProtectSystem=full
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
PrivateTmp=yes
"""


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """What a unit says.

    Attributes:
        node: its name.
        project: its folder.
        program: the words that call peerd.
        options: the words that follow each of its commands.
        grace: the longest of the node's and its kinds', seconds.
        user: whose processes it has; None in a unit of a user's own.
        environment: variables that the node is to find.
        notes: lines for whoever reads it.
    """

    node: str
    project: Path
    program: Sequence[str]
    options: Sequence[str]
    grace: float
    user: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Of the file."""
        return f"peerd-{self.node}.service"

    def __str__(self) -> str:
        """The text."""
        return "\n".join([*self._head(), *self._unit(), *self._service(), *self._install(), ""])

    def _head(self) -> list[str]:
        return [f"# {self.name}: made by peerd systemd.", *[f"# {note}" for note in self.notes], ""]

    def _unit(self) -> list[str]:
        return [
            "[Unit]",
            f"Description=peerd node {_escape_specifiers(self.node)} in {_escape_specifiers(str(self.project))}",
            "Wants=network-online.target",
            "After=network-online.target mariadb.service mysql.service postgresql.service",
            "# A database may be away for hours; there is no number of tries after which to give up.",
            "StartLimitIntervalSec=0",
            "",
        ]

    def _service(self) -> list[str]:
        return [
            "[Service]",
            "Type=notify",
            "NotifyAccess=main",
            *([f"User={_escape_specifiers(self.user)}"] if self.user else []),
            f"WorkingDirectory={_escape_specifiers(str(self.project))}",
            *[f"Environment={_quote(f'{name}={value}', command=False)}" for name, value in self.environment.items()],
            f"ExecStart={self._command('up')}",
            "# It waits for the end of the reload, and tells if it was abandoned; kill -HUP would only ask for one.",
            f"ExecReload={self._command('reload')}",
            f"TimeoutStartSec={_format_seconds(START_TIMEOUT)}",
            "# The grace, and what giving back and the agent's turn take after it. A drain that goes on asks for more.",
            f"TimeoutStopSec={_format_seconds(self.grace + STOP_MARGIN)}",
            f"WatchdogSec={_format_seconds(WATCHDOG_INTERVAL)}",
            "# Only the master is told to stop, and it tells its processes, in order; what is left then is killed.",
            "KillMode=mixed",
            "# A worker that is killed for want of memory is replaced by its master; it is no reason to end the node.",
            "OOMPolicy=continue",
            "Restart=on-failure",
            "RestartSec=5s",
            f"# 2: it was called wrongly; {exit_codes.ALREADY_RUNNING}: it runs already. Anything else may pass.",
            f"RestartPreventExitStatus=2 {exit_codes.ALREADY_RUNNING}",
            "LimitNOFILE=65536",
            "NoNewPrivileges=yes",
            "RestrictSUIDSGID=yes",
            "LockPersonality=yes",
            *(_SYSTEM_ONLY.splitlines() if self.user else []),
            "",
        ]

    def _install(self) -> list[str]:
        return ["[Install]", f"WantedBy={'multi-user.target' if self.user else 'default.target'}"]

    def _command(self, command: str) -> str:
        return " ".join(_quote(word) for word in [*self.program, command, *self.options])


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f}s"


def _escape_specifiers(text: str) -> str:
    """A value that systemd takes as it stands, but for its % specifiers."""
    return text.replace("%", "%%")


def _quote(word: str, *, command: bool = True) -> str:
    r"""A word as systemd reads it, in a command line or in Environment=, where a dollar means nothing.

    >>> _quote("/srv/my studio/100%"), _quote("$5"), _quote("plain")
    ('"/srv/my studio/100%%"', '"$$5"', 'plain')
    """
    if re.fullmatch(r"[\w@+=:,./-]+", word):
        return word
    escaped = _escape_specifiers(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped.replace("$", "$$") if command else escaped}"'
