"""ffmpeg's ``-progress`` report → a fraction that only grows, and words for people."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

PROGRESS_OPTIONS = ("-nostats", "-progress", "pipe:1", "-stats_period", "0.5")


class FfmpegProgress(msgspec.Struct, frozen=True):
    """How far ffmpeg is: 0 to 1, seconds of output, frames, times real time, and the seconds that are left."""

    fraction: float
    seconds: float
    frames: int
    speed: float | None
    left: float | None

    def format_note(self, total: float) -> str:
        """For example '12 of 60 s encoded, 3.1× real time, 15 s left'."""
        parts = [f"{self.seconds:.0f} of {total:.0f} s encoded"]
        if self.speed is not None:
            parts.append(f"{self.speed:.1f}× real time")
        if self.left is not None:
            parts.append(f"{self.left:.0f} s left")
        return ", ".join(parts)


class ProgressReader:
    """Feed it the lines of ``-progress``; at the end of each block it returns a Report.

    ``total``: the expected seconds of output; 0 or less means unknown, and the fraction stays 0 until the end.
    ``stalled``: seconds since the output last grew.
    """

    def __init__(self, total: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._block: dict[str, str] = {}
        self._best = FfmpegProgress(0.0, 0.0, 0, None, None)
        self._reached: tuple[float, int] = (0.0, 0)
        self._grown_at = clock()

    @property
    def stalled(self) -> float:
        """Seconds since the time or the size of the output last grew."""
        return self._clock() - self._grown_at

    @property
    def report(self) -> FfmpegProgress:
        """The last report."""
        return self._best

    def feed(self, line: bytes) -> FfmpegProgress | None:
        """Take one line; return a Report when it ends a block."""
        key, _, value = line.decode(errors="replace").strip().partition("=")
        self._block[key] = value.strip()
        if key != "progress":
            return None
        block, self._block = self._block, {}
        self._best = self._read(block)
        return self._best

    def _read(self, block: dict[str, str]) -> FfmpegProgress:
        # out_time_ms is in microseconds too, in every version; the value may be absent, N/A or negative at first.
        seconds = max(self._best.seconds, (_integer(block.get("out_time_us")) or 0) / 1e6)
        self._note_growth(seconds, _integer(block.get("total_size")) or 0)
        fraction = min(1.0, seconds / self._total) if self._total > 0 else 0.0
        if block["progress"] == "end":
            fraction = 1.0
        speed = _speed(block.get("speed"))
        left = (self._total - seconds) / speed if speed and self._total > seconds else None
        frames = max(self._best.frames, _integer(block.get("frame")) or 0)
        return FfmpegProgress(max(self._best.fraction, fraction), seconds, frames, speed, left)

    def _note_growth(self, seconds: float, size: int) -> None:
        if seconds > self._reached[0] or size > self._reached[1]:
            self._reached = (max(seconds, self._reached[0]), max(size, self._reached[1]))
            self._grown_at = self._clock()


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _speed(text: str | None) -> float | None:
    try:
        speed = float((text or "").rstrip("x"))
    except ValueError:
        return None
    return speed if speed > 0 else None
