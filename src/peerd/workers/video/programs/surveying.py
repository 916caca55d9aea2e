"""Read every packet of a file, without decoding: how far it really goes."""

from __future__ import annotations

from peerd.workers.video.errors import MediaTooLarge
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.media import Media, Survey
from peerd.workers.video.programs.ffmpeg_errors import explain_unreadable
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.ffprobe import ffprobe
from peerd.workers.video.programs.ffprobe_output import parse_number
from peerd.workers.video.settings import VideoSettings

_BACKWARD_TOLERANCE = 0.1
_FORWARD_TOLERANCE = 10.0  # where ffmpeg itself begins to doubt times (-dts_delta_threshold)


async def survey(
    tools: FfmpegTools, file: FileDescriptor, source: str, media: Media, settings: VideoSettings
) -> Survey:
    """Read every packet of a file without decoding, and tell how far it really goes.

    A header's duration is a claim: half a Matroska file still claims the whole, and ffmpeg transcodes it with
    status 0. Reading costs seconds where encoding costs minutes, so damage is found before the work, not after.

    Raises MediaTooLarge when there are more than ``max_packets``.
    """
    entries = "packet=stream_index,pts_time,dts_time,duration_time,flags"
    show = ("-show_entries", entries, "-of", "csv=print_section=0")
    counter = PacketCounter(media)
    async with ffprobe(tools, show, file, settings, doing="reading", source=source) as program:
        async for line in program.lines(silence=settings.stall, within=settings.max_wall):
            counter.add(line)
            if counter.packets > settings.max_packets:
                most = str(settings.max_packets)
                raise MediaTooLarge(source=source, need="more packets", limit=most, option="max_packets")
        status = await program.ended()
        if status < 0:  # else what is missing shows how it went
            memory = settings.max_probe_memory
            raise explain_unreadable(source, "reading", status, program.errors.kept, memory=memory)
    return counter.survey()


class PacketCounter:
    """Adds up ffprobe's packet lines: ``stream,pts,dts,duration,flags``."""

    def __init__(self, media: Media) -> None:
        self.packets = 0
        self._start = media.start
        self._video = media.video.index if media.video else -1
        self._audio = media.audio.index if media.audio else None
        self._ends: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._first_picture = float("inf")
        self._frames = 0
        self._jumps = 0

    def add(self, line: bytes) -> None:
        """Count one line; what is not a packet's is passed over."""
        fields = line.split(b",")
        if len(fields) < 5 or not fields[0].isdigit():
            return
        self.packets += 1
        if b"D" in fields[4]:
            return  # outside the edit list, decoded but never shown
        stream = int(fields[0])
        self._frames += stream == self._video
        shown, decoded = parse_number(fields[1]), parse_number(fields[2])
        if decoded is not None:
            self._note_jump(stream, decoded)
        # AVI knows when to decode a picture, not when to show it; that is a few frames earlier at most.
        shown = decoded if shown is None else shown
        if shown is not None:
            begin = shown - self._start
            end = begin + (parse_number(fields[3]) or 0.0)
            self._ends[stream] = max(end, self._ends.get(stream, 0.0))
            if stream == self._video:
                self._first_picture = min(begin, self._first_picture)

    def _note_jump(self, stream: int, decoded: float) -> None:
        last = self._last.get(stream, decoded)
        if stream in (self._video, self._audio) and not -_BACKWARD_TOLERANCE <= decoded - last <= _FORWARD_TOLERANCE:
            self._jumps += 1
        self._last[stream] = decoded

    def survey(self) -> Survey:
        """Return what was read so far."""
        video_end = self._ends.get(self._video, 0.0)
        return Survey(
            readable=max(self._ends.values(), default=0.0),
            video_end=video_end,
            video_length=max(0.0, video_end - max(0.0, min(self._first_picture, video_end))),
            audio_end=self._ends.get(self._audio) if self._audio is not None else None,
            frames=self._frames,
            jumps=self._jumps,
        )
