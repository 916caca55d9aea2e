"""Runs one external program: its own process group, limits, bounded output, killed at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Self

from peerd import ResourceLimits, launch_command
from peerd.workers.video.errors import EncoderStalled, MediaTooLarge, MediaUnreadable
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.programs.ffmpeg_tools import minimal_environment
from peerd.workers.video.settings import VideoSettings

_MAX_LINE = 400
_CHUNK = 2**16
_ADDRESS = re.compile(r"\[(\w[^@\]]*) @ 0x[0-9a-f]+\]")  # an object of ffmpeg, in its messages
_DESCRIPTOR = re.compile(r"(file:)?/proc/self/fd/\d+")  # what FileDescriptor.address is
_OPEN_FILES = 64
_HARMLESS = re.compile(rb"not on whitelist|exceeds max_streams|Error while decoding stream #\d+:\d+: Invalid argument")
"""About streams that are not used or too many, and about empty packets that ffmpeg itself writes into Ogg files."""


def program_limits(settings: VideoSettings, memory: int | None = None) -> ResourceLimits:
    """Return the kernel's limits of each program from the worker's options; ``memory`` lowers the limit of memory."""
    return ResourceLimits(
        cpu_seconds=settings.max_cpu,
        memory_bytes=min(memory or settings.max_memory, settings.max_memory),
        file_bytes=settings.max_output,
        open_files=_OPEN_FILES,
        nice=settings.nice,
    )


class ErrorLines:
    """The lines of a program's stderr: all are counted, the first and the last are kept, each shortened.

    The first describe what is wrong with the file, the last why the program ended.
    """

    def __init__(self, keep: int = 20) -> None:
        self.count = 0
        self.first: list[str] = []
        self._last: deque[bytes] = deque(maxlen=keep)
        self._keep = keep
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add a chunk; an empty ``data`` ends the last line."""
        *lines, self._rest = (self._rest + data).split(b"\n") if data else (self._rest, b"")
        for line in filter(bytes.strip, lines):
            is_error = _HARMLESS.search(line) is None
            self.count += is_error
            if is_error and len(self.first) < self._keep:
                self.first.append(_printable(line))
            else:
                self._last.append(line)
        self._rest = self._rest[: _MAX_LINE * 4]

    @property
    def kept(self) -> list[str]:
        return [*self.first, *map(_printable, self._last)]


def _printable(line: bytes) -> str:
    """Return a line as printable text, without addresses and descriptors, shortened."""
    text = _DESCRIPTOR.sub("the file", line[: _MAX_LINE * 4].decode(errors="replace").strip())
    text = _ADDRESS.sub(r"[\1]", text)[:_MAX_LINE]
    return "".join(character if character.isprintable() else "?" for character in text)


@dataclass
class Program:
    """Runs a program during an ``async with``; its whole process group is killed at the end.

    It inherits ``files`` and nothing else. ``doing`` and ``source`` are the activity and the file that errors name.
    """

    command: Sequence[str]
    limits: ResourceLimits
    _: KW_ONLY
    doing: str
    source: str
    files: Sequence[FileDescriptor] = ()
    errors: ErrorLines = field(default_factory=ErrorLines, init=False)
    _process: asyncio.subprocess.Process = field(init=False)
    _draining: asyncio.Task[None] = field(init=False)

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *launch_command(self.command, limits=self.limits),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=minimal_environment(),
            pass_fds=[file.fd for file in self.files],
        )
        self._draining = asyncio.create_task(self._drain_errors())
        return self

    async def __aexit__(self, *_: object) -> None:
        # The number surely names our group only until the leader is reaped.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._draining.cancel()
        await asyncio.gather(self._draining, return_exceptions=True)
        await self._process.wait()

    @property
    def pid(self) -> int:
        """The process id of the program and of its group."""
        return self._process.pid

    async def read_all(self, max_bytes: int, *, within: float) -> bytes:
        """Return the whole output, of at most ``max_bytes``, within ``within`` seconds.

        Raises MediaUnreadable when it is longer, MediaTooLarge when it takes longer.
        """
        content = bytearray()
        try:
            async with asyncio.timeout(within):
                while chunk := await self._stdout.read(_CHUNK):
                    content += chunk
                    if len(content) > max_bytes:
                        raise MediaUnreadable(source=self.source, reason="it describes itself without end")
        except TimeoutError:
            raise self._time_limit_error(within) from None
        return bytes(content)

    async def lines(
        self, *, silence: float, within: float, activity_probe: Callable[[], object] = lambda: None
    ) -> AsyncIterator[bytes]:
        """Yield the lines of the output; an absurdly long line is cut.

        ``silence``: seconds without output, and without a new value of ``activity_probe``, that count as a stall.
        ``within``: seconds for the whole. Raises EncoderStalled, MediaTooLarge.
        """
        deadline = time.monotonic() + within
        last_activity = activity_probe()
        rest = b""
        reading: asyncio.Task[bytes] | None = None
        try:
            while True:
                left = deadline - time.monotonic()
                # In chunks: a task for each of millions of lines would be slow.
                reading = reading or asyncio.create_task(self._stdout.read(_CHUNK))
                done, _ = await asyncio.wait({reading}, timeout=max(0.0, min(silence, left)))
                if not done:
                    activity = activity_probe()
                    if time.monotonic() >= deadline:
                        raise self._time_limit_error(within)
                    if activity == last_activity:
                        raise EncoderStalled(seconds=silence, doing=self.doing, source=self.source)
                    last_activity = activity
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
        """Wait for the end of the program and of its stderr; return its exit status, -N for a signal."""
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

    def _time_limit_error(self, seconds: float) -> MediaTooLarge:
        option = "probe_timeout" if self.doing == "probing" else "max_wall"
        return MediaTooLarge(
            source=self.source, need=f"more time for {self.doing}", limit=f"{seconds:.0f} s", option=option
        )
