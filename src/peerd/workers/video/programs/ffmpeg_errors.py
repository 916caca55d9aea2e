"""Chooses the error for a failed run of ffmpeg or ffprobe from its status and its stderr."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from peerd.workers.video.errors import (
    DiskFull,
    EncoderFailed,
    FormatRefused,
    MediaDamaged,
    MediaTooLarge,
    MediaUnreadable,
    PlanFailed,
    VideoError,
)
from peerd.workers.video.formats import FORMATS_TEXT, PLAYLISTS
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext

_NOT_LISTED = ("not on whitelist", "Not detecting m3u8", "Not whitelisted", "not on codec whitelist")
_NO_ROOM = ("No space left on device", "Disk quota exceeded")
_NO_MEMORY = ("Cannot allocate memory", "failed to map segment", "std::bad_alloc", "malloc of size")
_TOO_MANY = ("exceeds max_streams",)
_TOO_BIG = ("File too large",)
_PIXELS = re.compile(r"Picture size (\d+x\d+) exceeds specified max pixel count (\d+)")
_UNLISTED_CODEC = re.compile(r"Codec \((\w+)\) not on whitelist")
_UNLISTED_FORMAT = re.compile(r"\[([\w,]+)\] Format not on whitelist")
_NODE_FAULTS = ("Input/output error", "Stale file handle", "Permission denied", "Too many open files")
_NOT_MEDIA = (
    "Invalid data found when processing input",
    "moov atom not found",
    "End of file",
    "Error while decoding",
    "Error submitting packet",
    "after EOF",  # no picture, or no sound, came of all packets
    "received no packets",
)


def explain_failure(
    context: ProgramContext, doing: str, status: int, lines: Sequence[str], *, probing: bool = False
) -> VideoError:
    """The error for the ``status`` of ffmpeg, or of ffprobe (``probing``); negative: a signal.

    ``lines`` are what it printed.
    """
    source, settings = context.source, context.settings
    if _contains_any(lines, _NO_ROOM) and not probing:
        return DiskFull(directory=settings.directory)
    if (match := _search(_PIXELS, lines)) is not None:
        need = f"{match[1]} pixels per picture"
        return MediaTooLarge(source=source, need=need, limit=match[2], option="max_pixels")
    if _contains_any(lines, _TOO_MANY):
        return FormatRefused(source=source, reason="it has more than 64 streams", expected=FORMATS_TEXT)
    memory = min(settings.max_probe_memory, settings.max_memory) if probing else settings.max_memory
    for exceeded, need, limit, option in (
        (status == -signal.SIGXFSZ or _contains_any(lines, _TOO_BIG), "output", settings.max_output, "max_output"),
        (status == -signal.SIGXCPU, "CPU time", "max_wall on all cores", "max_wall"),
        (_contains_any(lines, _NO_MEMORY), "memory", memory, "max_probe_memory" if probing else "max_memory"),
    ):
        if exceeded and status != -signal.SIGKILL:
            told = f"{limit} bytes" if isinstance(limit, int) else limit
            return MediaTooLarge(source=source, need=f"more {need}", limit=told, option=option)
    error = _blame_source(source, status, lines, probing=probing)
    if error is not None:
        return error
    names = {each.value: each.name for each in signal.Signals}
    ending = f"status {status}" if status >= 0 else f"signal {names.get(-status, -status)}"
    return EncoderFailed(source=source, doing=doing, ending=ending, reason=_first_lines(lines))


def _blame_source(source: str, status: int, lines: Sequence[str], *, probing: bool) -> VideoError | None:
    """The error when the source or the plan is at fault; ffprobe does not crash over healthy files, ffmpeg may."""
    if status < 0 and not (probing and status != -signal.SIGKILL):  # neither peerd nor a file kills it
        return None
    # The program could not be started, or the node cannot read the file.
    if status in (126, 127) or _contains_any(lines, _NODE_FAULTS):
        return None
    refused = _refuse_unlisted(source, lines)
    if refused is not None:
        return refused
    if probing:
        return MediaUnreadable(source=source, reason=_first_lines(lines))
    damaged = _contains_any(lines, _NOT_MEDIA)
    return (MediaDamaged if damaged else PlanFailed)(source=source, reason=_first_lines(lines))


def _refuse_unlisted(source: str, lines: Sequence[str]) -> FormatRefused | None:
    if (match := _search(_UNLISTED_CODEC, lines)) is not None:
        reason = f"the codec {match[1]} of one of its streams is not accepted"
        return FormatRefused(source=source, reason=reason, expected="H.264, HEVC, VP9 or AV1 with AAC, MP3 or Opus")
    if not _contains_any(lines, _NOT_LISTED):
        return None
    match = _search(_UNLISTED_FORMAT, lines)
    name = match[1] if match is not None else "hls"
    reason = f"its format is {name}, which is for sound alone or is not accepted"
    if not PLAYLISTS.isdisjoint(name.split(",")):
        reason = f"it is a playlist or a script ({name})"
    elif name.endswith("_pipe"):
        reason = f"it is a still picture ({name.removesuffix('_pipe')})"
    return FormatRefused(source=source, reason=reason, expected=FORMATS_TEXT)


def _search(pattern: re.Pattern[str], lines: Sequence[str]) -> re.Match[str] | None:
    return next((match for line in lines if (match := pattern.search(line))), None)


def _contains_any(lines: Sequence[str], phrases: Sequence[str]) -> bool:
    return any(phrase in line for line in lines for phrase in phrases)


def _first_lines(lines: Sequence[str]) -> str:
    return " / ".join(lines[:3]) if lines else "it gave no reason"
