"""The timeline of a file: when its picture and its sound are shown, read from its packets without decoding.

Sources and outputs are measured by the same reader, and every check compares two of its results.
"""

from __future__ import annotations

import msgspec

from peerd.workers.video.formats import BROKEN_TIMES
from peerd.workers.video.media import Media

PACKET_ENTRIES = "packet=stream_index,pts_time,dts_time,duration_time,flags"
"""The entries of ffprobe that `PacketReader` reads."""
_LEAP = 10.0
"""Seconds; above it ffmpeg takes a leap for a new beginning, in containers with broken times (-dts_delta_threshold)."""
_USUAL_FRAME = 0.04  # seconds; where a container does not say how long a frame is shown
_BACKWARD = 0.1
"""Seconds by which times may run backwards before they count as wrong."""
UNEVEN = 0.25
"""By which share of their distance frames may come too early, and still not be one too many."""
ALL_FRAMES = 10_000  # frames per second
_MAX_HEAD = 3000
"""Pictures that are remembered by their times: a file that begins in the middle of a GOP shows not all of them."""


class Span(msgspec.Struct):
    """A stream: seconds from the file's start, and what of it is shown.

    ``last`` is when the last frame begins, ``gap`` the longest time between two. Of a picture, ``kept`` counts the
    frames that the highest frame rate leaves, and ``kept_after`` is the time from the first to the last of them;
    ``undecodable`` counts the frames at the start that depend on frames before the file's begin, ``keys`` the key
    frames. ``jumps``: how often its times run backwards.
    """

    begin: float = float("inf")
    end: float = 0.0
    last: float = float("-inf")
    frames: int = 0
    kept: int = 0
    kept_after: float = 0.0
    gap: float = 0.0
    undecodable: int = 0
    keys: int = 0
    jumps: int = 0
    head: list[float] = []
    key: float | None = None
    next: float | None = None
    decoded: float | None = None
    first: float | None = None

    @property
    def length(self) -> float:
        return max(0.0, self.end - self.begin)

    def starting_at(self, first: float) -> Span:
        """Return it without the frames before the first one that a decoder shows."""
        lost = sum(time < first - 0.001 for time in self.head)
        frames = self.frames - lost
        kept = min(self.kept, frames)
        return msgspec.structs.replace(self, begin=max(first, self.begin), frames=frames, kept=kept, undecodable=0)

    def keep(self, decoded: float | None, max_fps: int) -> None:
        """Count a frame; in the order of decoding, in which frames have the same distances as when they are shown."""
        after = 0.0 if decoded is None or self.first is None else decoded - self.first
        if not after or int(after * max_fps + UNEVEN) > int(self.kept_after * max_fps + UNEVEN):
            self.kept, self.kept_after = self.kept + 1, max(after, self.kept_after)
        self.first = decoded if self.first is None else self.first


class Timeline(msgspec.Struct, frozen=True):
    """When the film and its sound are shown. ``readable`` is the end of the last packet of any stream, in seconds."""

    readable: float
    video: Span
    audio_end: float | None = None
    jumps: int = 0
    lost: float = 0.0
    """Seconds at the start whose pictures cannot be decoded."""
    lost_errors: int = 0
    """Error lines of a decoder about them."""
    steady: bool = False
    """Whether leaps are pauses of one stream, and not a new beginning."""


class PacketReader:
    """Sums up ffprobe's packet lines, ``stream,pts,dts,duration,flags``, into a `Span` for each stream.

    ``max_fps``: the highest frame rate, in frames per second. ``steady``: a leap is a pause, as it is where a file has
    one stream, or where `one_stream_pauses`. ``seconds``: only those packets of the start.
    """

    def __init__(
        self, media: Media, *, max_fps: int = ALL_FRAMES, steady: bool = False, seconds: float | None = None
    ) -> None:
        self.seconds = seconds
        self.packets = 0
        self.one_stream_pauses = False
        """Whether a stream leapt and another did not: it has a pause, and nothing begins anew."""
        self.spans: dict[int, Span] = {}
        self._start = media.start
        self._videos = {each.index for each in media.videos}
        self._timed = self._videos | {each.index for each in media.sounds}
        self._broken_times = media.is_one_of(BROKEN_TIMES)
        self._steady = steady or len(self._timed) == 1
        self._max_fps = max_fps
        self._offset = 0.0
        self._leapt: tuple[Span, float] | None = None
        self._latest: float | None = None

    def add(self, line: bytes) -> None:
        """Count one line; lines that are no packet are ignored."""
        fields = line.split(b",")
        if len(fields) < 5 or not fields[0].isdigit():
            return
        self.packets += 1
        if b"D" in fields[4]:
            return  # outside the edit list, decoded but never shown
        stream = int(fields[0])
        span = self.spans.get(stream)
        if span is None:
            span = self.spans[stream] = Span()
        shown, decoded, duration = parse_number(fields[1]), parse_number(fields[2]), parse_number(fields[3])
        # AVI has the decode time alone, a few frames earlier at most; raw streams have none, their frames follow.
        time = decoded if decoded is not None else shown
        if time is None:
            time = span.next if span.next is not None else self._start
        elif stream in self._timed:
            time = self._continued(span, time + self._offset)
        begin = (shown + self._offset if shown is not None else time) - self._start
        if duration is None:
            duration = _USUAL_FRAME if stream in self._videos else max(0.0, begin - span.last) if span.frames else 0.0
        _note_frame(span, begin, duration)
        if stream in self._videos:
            span.keep(time if decoded is not None else None, self._max_fps)
            _note_key(span, begin, key=b"K" in fields[4])
        if decoded is not None:
            span.decoded = time
        span.next, self._latest = time + duration, time

    def _continued(self, span: Span, time: float) -> float:
        """Return the time at which ffmpeg goes on: where times are broken, a leap shifts all that follows."""
        expected = span.next if span.next is not None else self._latest
        backward = span.decoded is not None and time + _BACKWARD < span.decoded
        leaps = expected is not None and abs(time - expected) > _LEAP and not self._steady
        if self._broken_times and expected is not None and (backward or leaps):
            if self._leapt is not None and self._leapt[0] is not span and (expected - time) * self._leapt[1] < 0:
                self.one_stream_pauses = True
            self._offset, self._leapt = self._offset + expected - time, (span, expected - time)
            return expected
        span.jumps += backward
        return time

    def timeline(self, media: Media) -> Timeline:
        """Return what was read of the chosen streams."""
        video = self.spans.get(media.video.index) if media.video is not None else None
        sounds = [self.spans[each.index] for each in media.audio if each.index in self.spans]
        return Timeline(
            readable=max((span.end for span in self.spans.values()), default=0.0),
            video=video or Span(begin=0.0),
            audio_end=max((span.end for span in sounds), default=None),
            jumps=sum(span.jumps for span in [*sounds, *([video] if video else [])]),
            steady=self._steady,
        )


def _note_frame(span: Span, begin: float, duration: float) -> None:
    if not span.frames:
        span.begin = span.last = begin
    if span.frames:
        span.gap = max(span.gap, begin - span.last)
    span.begin, span.last = min(span.begin, begin), max(span.last, begin)
    span.end = max(span.end, begin + duration)
    span.frames += 1


def _note_key(span: Span, begin: float, *, key: bool) -> None:
    if len(span.head) < _MAX_HEAD:
        span.head.append(begin)
    span.keys += key
    if span.key is None and key:
        span.key, span.undecodable = begin, span.frames - 1
    elif span.key is not None and begin < span.key:
        span.undecodable += 1  # of an open GOP


def parse_number(text: str | bytes) -> float | None:
    """Parse a number; N/A and absurd values are None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None  # not NaN, not infinite, not absurd
