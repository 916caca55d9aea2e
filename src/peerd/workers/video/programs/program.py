"""One foreign program: its own process group, limits, bounded output, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

from peerd import ResourceLimits, launch_command
from peerd.workers.video.errors import EncoderStalled, MediaTooLarge, MediaUnreadable
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.settings import VideoSettings

_LONGEST_LINE = 400
_CHUNK = 2**16
_ADDRESS = re.compile(r"\[(\w[^@\]]*) @ 0x[0-9a-f]+\]")  # which object of its own ffmpeg speaks of
_DESCRIPTOR = re.compile(r"(file:)?/proc/self/fd/\d+")  # what FileDescriptor.address is
_OPEN_FILES = 64
_PASSED_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
)  # what it takes to find a program that a wrapper starts, and its libraries


def minimal_environment() -> dict[str, str]:
    """Return all that a program is told of this process's environment, in which the secrets of the cluster lie."""
    return {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}


def program_limits(settings: VideoSettings, memory: int | None = None) -> ResourceLimits:
    """What the kernel enforces on each program, as the worker's options say; ``memory`` if it is to be less."""
    return ResourceLimits(
        cpu_seconds=settings.max_cpu,
        memory_bytes=min(memory or settings.max_memory, settings.max_memory),
        file_bytes=settings.max_output,
        open_files=_OPEN_FILES,
        nice=settings.nice,
    )


class ErrorLines:
    """What a program wrote to stderr: all lines counted, the first and the last ones kept, each cut to a sane length.

    The first say what was wrong with the file, the last why the program gave up.
    """

    def __init__(self, keep: int = 20) -> None:
        self.count = 0
        self.first: list[str] = []
        self._last: deque[bytes] = deque(maxlen=keep)
        self._keep = keep
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add what was read; an empty ``data`` ends the last line."""
        *lines, self._rest = (self._rest + data).split(b"\n") if data else (self._rest, b"")
        for line in lines:
            self._add(line)
        if len(self._rest) > _LONGEST_LINE * 4:
            self._rest = self._rest[: _LONGEST_LINE * 4]

    @property
    def kept(self) -> list[str]:
        """The first lines and the last ones."""
        return [*self.first, *map(_printable, self._last)]

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        self.count += 1
        if len(self.first) < self._keep:
            self.first.append(_printable(line))
        else:
            self._last.append(line)


def _printable(line: bytes) -> str:
    """Return a line for people: printable, without addresses and descriptors, and not too long."""
    text = _DESCRIPTOR.sub("the file", line[: _LONGEST_LINE * 4].decode(errors="replace").strip())
    text = _ADDRESS.sub(r"[\1]", text)[:_LONGEST_LINE]
    return "".join(character if character.isprintable() else "?" for character in text)


class Program:
    """Runs a program for the length of an ``async with``; leaving it, however, leaves no process of it.

    It inherits ``files`` and nothing else. ``doing`` and ``source`` are for the words of errors.
    """

    def __init__(
        self,
        command: Sequence[str],
        limits: ResourceLimits,
        *,
        doing: str,
        source: str,
        files: Sequence[FileDescriptor] = (),
    ) -> None:
        self.errors = ErrorLines()
        self._files = files
        self._command = command
        self._limits = limits
        self._doing = doing
        self._source = source
        self._process: asyncio.subprocess.Process
        self._draining: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *launch_command(self._command, limits=self._limits),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=minimal_environment(),
            pass_fds=[file.fd for file in self._files],
        )
        self._draining = asyncio.create_task(self._drain_errors())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_group()
        self._draining.cancel()
        await asyncio.gather(self._draining, return_exceptions=True)
        await self._process.wait()

    @property
    def pid(self) -> int:
        """The program's process id, which is also its group's."""
        return self._process.pid

    async def read_all(self, most: int, *, within: float) -> bytes:
        """Return the whole output, of at most ``most`` bytes, within ``within`` seconds.

        Raises MediaUnreadable when it is longer, MediaTooLarge when it takes longer.
        """
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(within):
                while chunk := await self._stdout.read(_CHUNK):
                    parts.append(chunk)
                    if sum(map(len, parts)) > most:
                        raise MediaUnreadable(source=self._source, reason="it describes itself without end")
        except TimeoutError:
            raise self._time_limit_error(within) from None
        return b"".join(parts)

    async def lines(
        self, *, silence: float, within: float, activity_probe: Callable[[], object] = lambda: None
    ) -> AsyncIterator[bytes]:
        """Yield the output line by line until it ends; a line of absurd length is left out.

        ``silence``: seconds without a line, and without a new value of ``activity_probe``, that count as a stall.
        ``within``: seconds for all of it. Raises EncoderStalled, MediaTooLarge.
        """
        deadline = time.monotonic() + within
        last_sign = activity_probe()
        rest = b""
        reading: asyncio.Task[bytes] | None = None
        try:
            while True:
                left = deadline - time.monotonic()
                # Chunks: a file of very many packets has a line for each, and a task for each is slow.
                reading = reading or asyncio.create_task(self._stdout.read(_CHUNK))
                done, _ = await asyncio.wait({reading}, timeout=max(0.0, min(silence, left)))
                if not done:
                    sign = activity_probe()
                    if time.monotonic() >= deadline:
                        raise self._time_limit_error(within)
                    if sign == last_sign:
                        raise EncoderStalled(seconds=silence, doing=self._doing, source=self._source)
                    last_sign = sign
                    continue
                chunk, reading = reading.result(), None
                if time.monotonic() >= deadline and chunk:
                    raise self._time_limit_error(within)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
                if not chunk:
                    if rest:
                        yield rest
                    return
                rest = rest[-_CHUNK:]
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def ended(self) -> int:
        """Wait for the end of the program and of what it says on stderr; return its exit status, -N for a signal."""
        status = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._draining), 5.0)
        return status

    @property
    def _stdout(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    async def _drain_errors(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self.errors.feed(chunk)
        self.errors.feed(b"")

    def _kill_group(self) -> None:
        # Only while the leader is not reaped is the number surely that of our group.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _time_limit_error(self, seconds: float) -> MediaTooLarge:
        option = "probe_timeout" if self._doing == "probing" else "max_wall"
        return MediaTooLarge(
            source=self._source, need=f"more time for {self._doing}", limit=f"{seconds:.0f} s", option=option
        )
