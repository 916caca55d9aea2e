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
    """The error for a failed ffprobe. ``memory`` is its limit in bytes.

    >>> type(explain_unreadable("a", "probing", 1, ["x: moov atom not found"], memory=1))
    <class 'peerd.workers.video.errors.MediaUnreadable'>
    """
    too_many = _too_many_pixels(source, lines)
    if too_many is not None:
        return too_many
    if status == -signal.SIGKILL:  # neither peerd nor a file causes it
        return _encoder_failed(source, doing, status, lines)
    if _contains_any(lines, _NO_MEMORY):
        return MediaTooLarge(source=source, need="more memory", limit=f"{memory} bytes", option="max_probe_memory")
    return _refuse_unlisted(source, lines) or MediaUnreadable(source=source, reason=_first_lines(lines))


def explain_failure(
    source: str, doing: str, status: int, lines: Sequence[str], *, directory: str, memory: int, output: int
) -> VideoError:
    """The error for ffmpeg's ``status`` (negative: a signal). ``memory`` and ``output`` are its limits in bytes.

    >>> type(explain_failure("a", "encoding", 1, ["x: No space left on device"], directory="/m", memory=1, output=1))
    <class 'peerd.workers.video.errors.DiskFull'>
    """
    if _contains_any(lines, _NO_ROOM):
        return DiskFull(directory=directory)
    error: VideoError | None = _exceeded_limit(source, status, lines, memory=memory, output=output)
    if error is None and status > 0:  # a signal is no fault of the file
        error = _refuse_unlisted(source, lines)
        if error is None and (status == _TOO_MANY_ERRORS or _contains_any(lines, _NOT_MEDIA)):
            error = MediaDamaged(source=source, reason=_first_lines(lines))
    return error or _encoder_failed(source, doing, status, lines)


def _exceeded_limit(
    source: str, status: int, lines: Sequence[str], *, memory: int, output: int
) -> MediaTooLarge | None:
    too_many = _too_many_pixels(source, lines)
    if too_many is not None:
        return too_many
    if status == -signal.SIGXFSZ or _contains_any(lines, _TOO_BIG):
        return MediaTooLarge(source=source, need="more output", limit=f"{output} bytes", option="max_output")
    if status == -signal.SIGXCPU:
        return MediaTooLarge(source=source, need="more CPU time", limit="max_wall on all cores", option="max_wall")
    if _contains_any(lines, _NO_MEMORY):
        return MediaTooLarge(source=source, need="more memory", limit=f"{memory} bytes", option="max_memory")
    return None


def _refuse_unlisted(source: str, lines: Sequence[str]) -> FormatRefused | None:
    codec = next((match[1] for line in lines if (match := _UNLISTED_CODEC.search(line))), None)
    if codec is not None:
        reason = f"the codec {codec} of one of its streams is not accepted"
        return FormatRefused(source=source, reason=reason, expected="H.264, HEVC, VP9 or AV1 with AAC, MP3 or Opus")
    if _contains_any(lines, _NOT_LISTED):
        reason = "its content is a playlist, a script or a format that is not accepted"
        return FormatRefused(source=source, reason=reason, expected=FORMATS_TEXT)
    return None


def _too_many_pixels(source: str, lines: Sequence[str]) -> MediaTooLarge | None:
    match = next((match for line in lines if (match := _PIXELS.search(line))), None)
    if match is None:
        return None
    return MediaTooLarge(source=source, need=f"{match[1]} pixels per picture", limit=match[2], option="max_pixels")


def _encoder_failed(source: str, doing: str, status: int, lines: Sequence[str]) -> EncoderFailed:
    names = {each.value: each.name for each in signal.Signals}
    ending = f"status {status}" if status >= 0 else f"signal {names.get(-status, -status)}"
    return EncoderFailed(source=source, doing=doing, ending=ending, reason=_first_lines(lines))


def _contains_any(lines: Sequence[str], phrases: Sequence[str]) -> bool:
    return any(phrase in line for line in lines for phrase in phrases)


def _first_lines(lines: Sequence[str]) -> str:
    return " / ".join(lines[:3]) if lines else "it gave no reason"
