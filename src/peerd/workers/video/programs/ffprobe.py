"""Ask ffprobe about a file, and hold what it is against the lists and limits."""

from __future__ import annotations

from collections.abc import Sequence

from peerd.workers.video.errors import FormatRefused, MediaTooLarge, MediaUnreadable
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.media import AUDIO_CODECS, FORMATS, FORMATS_TEXT, VIDEO_CODECS, Media, VideoStream
from peerd.workers.video.programs.ffmpeg_errors import explain_unreadable
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.ffprobe_output import PROBE_ENTRIES, parse_probe
from peerd.workers.video.programs.program import Program, program_limits
from peerd.workers.video.settings import VideoSettings

_MOST_STREAMS = 64
_LARGEST_ANSWER = 4 * 2**20  # bytes


def guarded_input(
    tools: FfmpegTools, file: FileDescriptor, settings: VideoSettings, formats: Sequence[str] = FORMATS
) -> list[str]:
    """Return the options that must stand before every input, for ffmpeg and ffprobe alike, and the input itself.

    Files only, known containers and codecs only, bounded pictures and streams. The program must inherit the file.
    """
    return [
        *("-protocol_whitelist", "file"),
        *("-format_whitelist", ",".join(formats)),
        *("-codec_whitelist", ",".join(tools.decoders)),
        *("-max_streams", str(_MOST_STREAMS)),
        *("-max_pixels", str(settings.max_pixels)),
        *("-i", f"file:{file.address}"),
    ]


def ffprobe(
    tools: FfmpegTools,
    show: Sequence[str],
    file: FileDescriptor,
    settings: VideoSettings,
    *,
    doing: str,
    source: str,
    formats: Sequence[str] = FORMATS,
) -> Program:
    """Return a run of ffprobe over a file; ``show`` says what of it and how. ``doing`` and ``source`` as in Program."""
    command = [tools.ffprobe, "-v", "error", "-hide_banner", "-threads", "1", *show]
    return Program(
        [*command, *guarded_input(tools, file, settings, formats)],
        program_limits(settings, memory=settings.max_probe_memory),
        doing=doing,
        source=source,
        files=[file],
    )


async def probe(
    tools: FfmpegTools, file: FileDescriptor, source: str, settings: VideoSettings, formats: Sequence[str] = FORMATS
) -> Media:
    """Ask ffprobe about a file. ``source`` is the name that errors use.

    Raises FormatRefused, MediaUnreadable, MediaTooLarge, EncoderFailed.
    """
    show = ("-show_entries", PROBE_ENTRIES, "-of", "json")
    async with ffprobe(tools, show, file, settings, doing="probing", source=source, formats=formats) as program:
        answer = await program.read_all(_LARGEST_ANSWER, within=settings.probe_timeout)
        status = await program.ended()
        if status != 0:
            raise explain_unreadable(source, "probing", status, program.errors.kept, memory=settings.max_probe_memory)
    return parse_probe(answer, source)


def require_acceptable(media: Media, source: str, settings: VideoSettings, *, audio: bool) -> VideoStream:
    """Return the picture of a file that is within the lists and limits. ``audio``: the sound is wanted too.

    Raises FormatRefused, MediaTooLarge.
    """
    video = media.video
    if video is None:
        raise FormatRefused(source=source, reason="it has no moving picture", expected=FORMATS_TEXT)
    if video.codec not in VIDEO_CODECS:
        raise FormatRefused(
            source=source, reason=f"its video codec {video.codec} is not accepted", expected="H.264, HEVC, VP9 or AV1"
        )
    if video.width <= 0 or video.height <= 0:
        raise MediaUnreadable(source=source, reason="its picture has no size")
    if audio and media.audio is not None and media.audio.codec not in AUDIO_CODECS:
        reason = f"its audio codec {media.audio.codec} is not accepted (audio=false leaves it out)"
        raise FormatRefused(source=source, reason=reason, expected="AAC, MP3, Opus or FLAC sound")
    displayed_width, displayed_height = video.displayed
    pixels = max(video.width * video.height, displayed_width * displayed_height)
    for found, unit, limit, option in (
        (pixels, "pixels per picture", settings.max_pixels, "max_pixels"),
        (media.size, "bytes", settings.max_source, "max_source"),
        (media.duration or 0, "seconds", settings.max_duration, "max_duration"),
    ):
        if found > limit:
            raise MediaTooLarge(source=source, need=f"{found:.0f} {unit}", limit=f"{limit:.0f}", option=option)
    return video
