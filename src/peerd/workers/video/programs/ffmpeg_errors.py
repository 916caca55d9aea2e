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
    VideoError,
)
from peerd.workers.video.media import FORMATS_TEXT

_NOT_LISTED = ("not on whitelist", "Not detecting m3u8", "Not whitelisted", "not on codec whitelist")
_NO_ROOM = ("No space left on device", "Disk quota exceeded")
_NO_MEMORY = ("Cannot allocate memory", "std::bad_alloc", "malloc of size")
_TOO_BIG = ("File too large",)
_PIXELS = re.compile(r"Picture size (\d+x\d+) exceeds specified max pixel count (\d+)")
_UNLISTED_CODEC = re.compile(r"Codec \((\w+)\) not on whitelist")
_TOO_MANY_ERRORS = 69  # ffmpeg's own status when most of what it decodes is broken (-max_error_rate)
_NOT_MEDIA = (
    "Invalid data found when processing input",
    "moov atom not found",
    "End of file",
    "Error while decoding",
    "Error submitting packet",
    "after EOF",  # no picture, or no sound, came of all packets
    "received no packets",
)


def explain_unreadable(source: str, doing: str, status: int, lines: Sequence[str], *, memory: int) -> VideoError:
    """Why ffprobe could not read a file. ``memory`` is its limit in bytes.

    >>> type(explain_unreadable("a", "probing", 1, ["x: moov atom not found"], memory=1))
    <class 'peerd.workers.video.errors.MediaUnreadable'>
    """
    too_many = _too_many_pixels(source, lines)
    if too_many is not None:
        return too_many
    if status == -signal.SIGKILL:  # nothing of ours does it, and a file cannot
        return EncoderFailed(source=source, doing=doing, ending=_ending(status), reason=_first_lines(lines))
    if _contains_any(lines, _NO_MEMORY):
        return MediaTooLarge(source=source, need="more memory", limit=f"{memory} bytes", option="max_probe_memory")
    return _refuse_unlisted(source, lines) or MediaUnreadable(source=source, reason=_first_lines(lines))


def _refuse_unlisted(source: str, lines: Sequence[str]) -> FormatRefused | None:
    codec = next((match[1] for line in lines if (match := _UNLISTED_CODEC.search(line))), None)
    if codec is not None:
        reason = f"the codec {codec} of one of its streams is not accepted"
        return FormatRefused(source=source, reason=reason, expected="H.264, HEVC, VP9 or AV1 with AAC, MP3 or Opus")
    if _contains_any(lines, _NOT_LISTED):
        reason = "its content is a playlist, a script or a format that is not accepted"
        return FormatRefused(source=source, reason=reason, expected=FORMATS_TEXT)
    return None


def explain_failure(
    source: str, doing: str, status: int, lines: Sequence[str], *, directory: str, memory: int, output: int
) -> VideoError:
    """Why ffmpeg ended with ``status`` (negative: a signal). ``memory`` and ``output`` are its limits in bytes.

    >>> type(explain_failure("a", "encoding", 1, ["x: No space left on device"], directory="/m", memory=1, output=1))
    <class 'peerd.workers.video.errors.DiskFull'>
    """
    if _contains_any(lines, _NO_ROOM):
        return DiskFull(directory=directory)
    too_many = _too_many_pixels(source, lines)
    if too_many is not None:
        return too_many
    limit = _exceeded_limit(status, lines, memory=memory, output=output)
    if limit is not None:
        need, most, option = limit
        return MediaTooLarge(source=source, need=need, limit=most, option=option)
    if status > 0:  # a signal is no fault of the file's
        unlisted = _refuse_unlisted(source, lines)
        if unlisted is not None:
            return unlisted
        if status == _TOO_MANY_ERRORS or _contains_any(lines, _NOT_MEDIA):
            return MediaDamaged(source=source, reason=_first_lines(lines))
    return EncoderFailed(source=source, doing=doing, ending=_ending(status), reason=_first_lines(lines))


def _exceeded_limit(status: int, lines: Sequence[str], *, memory: int, output: int) -> tuple[str, str, str] | None:
    if status == -signal.SIGXFSZ or _contains_any(lines, _TOO_BIG):
        return "more output", f"{output} bytes", "max_output"
    if status == -signal.SIGXCPU:
        return "more CPU time", "max_wall on all cores", "max_wall"
    if _contains_any(lines, _NO_MEMORY):
        return "more memory", f"{memory} bytes", "max_memory"
    return None


def _too_many_pixels(source: str, lines: Sequence[str]) -> MediaTooLarge | None:
    match = next((match for line in lines if (match := _PIXELS.search(line))), None)
    if match is None:
        return None
    return MediaTooLarge(source=source, need=f"{match[1]} pixels per picture", limit=match[2], option="max_pixels")


def _ending(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def _contains_any(lines: Sequence[str], phrases: Sequence[str]) -> bool:
    return any(phrase in line for line in lines for phrase in phrases)


def _first_lines(lines: Sequence[str]) -> str:
    return " / ".join(lines[:3]) if lines else "it gave no reason"
