"""A program in a real terminal of the kernel, whose screen is read by an emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import pyte

from peerd.testing import eventually

WITHIN = 60.0
"""Seconds, for a program that starts on a busy machine."""


class Terminal:
    """Runs a program, which is ``peerd`` unless another is given, in a terminal of so many columns and lines."""

    def __init__(
        self,
        arguments: Sequence[str],
        columns: int,
        lines: int,
        *,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "peerd"),
    ) -> None:
        self.columns, self.lines = columns, lines
        self.output = bytearray()
        """All that the program has sent."""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._terminal, other_end = pty.openpty()
        self._set_size()
        variables = {**os.environ, **(environment or {}), "TERM": "xterm-256color"}
        variables.pop("NO_COLOR", None)
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), other_end)
        command = [*program, *arguments]
        self.process = subprocess.Popen(command, env=variables, start_new_session=True, **streams)
        self._other_end = other_end
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._other_end)
        self._reader.join(WITHIN)
        os.close(self._terminal)

    @property
    def received(self) -> int:
        """How many bytes the program has sent."""
        return len(self.output)

    def is_echoing(self) -> bool:
        """Whether the terminal shows what is typed, as it does for a shell."""
        return bool(termios.tcgetattr(self._other_end)[3] & termios.ECHO)

    @property
    def display(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.display)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, as the window of a terminal does."""
        self.columns, self.lines = columns, lines
        with self._lock:
            self._screen.resize(lines, columns)
        self._set_size()
        os.killpg(self.process.pid, signal.SIGWINCH)

    def wait_for(self, *texts: str, timeout: float = WITHIN) -> str:
        """Wait until all these are on the screen, and return what is there."""
        self.wait_until(lambda: all(text in self.text for text in texts), timeout)
        return self.text

    def wait_until(self, condition: Callable[[], object], timeout: float = WITHIN) -> None:
        """Wait until something is so; else the test fails with what is on the screen."""
        eventually(condition, timeout=timeout, message=lambda: self.text)

    def wait_until_ended(self, timeout: float = WITHIN) -> int:
        return self.process.wait(timeout)

    def _set_size(self) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))

    def _read(self) -> None:
        with suppress(OSError):  # the other end is closed
            while part := os.read(self._terminal, 65_536):
                with self._lock:
                    self.output += part
                    self._stream.feed(part)
