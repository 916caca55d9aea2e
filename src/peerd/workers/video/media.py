"""Properties of a media file as values, and the containers and codecs that may be decoded."""

from __future__ import annotations

from fractions import Fraction

import msgspec

# Containers by the names of their demuxers. No playlist, no concatenation script, no image sequence, no text:
# those formats open other files, and ffmpeg recognises them whatever the file is called.
FORMATS = ("mov", "mp4", "m4a", "3gp", "3g2", "mj2", "matroska", "webm", "avi", "mpeg", "mpegts", "ogg", "flv", "asf")
FORMATS_TEXT = "MP4, MOV, Matroska, WebM, AVI, MPEG, Ogg, FLV or ASF"

VIDEO_CODECS = frozenset(
    (
        *("h264", "hevc", "av1", "vp8", "vp9"),
        *("mpeg1video", "mpeg2video", "mpeg4", "msmpeg4v2", "msmpeg4v3", "h263", "flv1", "theora", "mjpeg"),
        *("wmv1", "wmv2", "wmv3", "vc1"),
        *("prores", "dnxhd", "dvvideo", "ffv1", "rawvideo"),
    )
)
"""No still pictures, no text, no animations of old terminals."""
AUDIO_CODECS = frozenset(
    (
        *("aac", "ac3", "eac3", "mp1", "mp2", "mp3", "opus", "vorbis", "flac", "alac"),
        *("wmav1", "wmav2", "wmapro", "amr_nb", "amr_wb", "dts", "truehd", "speex"),
        *("pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be", "pcm_f32le"),
        *("pcm_u8", "pcm_alaw", "pcm_mulaw", "pcm_bluray", "pcm_dvd"),
        *("adpcm_ms", "adpcm_ima_wav", "adpcm_ima_qt"),
    )
)
IGNORED_CODECS = frozenset(
    (
        *("mov_text", "subrip", "text", "ass", "webvtt", "eia_608"),
        *("dvd_subtitle", "dvb_subtitle", "dvb_teletext", "hdmv_pgs_subtitle"),
        *("png", "bmp", "gif"),
    )
)
"""Of subtitles and cover pictures, which are left out of the output."""
CODECS = VIDEO_CODECS | AUDIO_CODECS | IGNORED_CODECS
"""Only their decoders may be opened; ffprobe opens one for each stream, used or not."""
HDR_TRANSFERS = frozenset({"smpte2084", "arib-std-b67"})


class VideoStream(msgspec.Struct, frozen=True):
    """The picture. ``width`` and ``height`` are as stored; ``rotation`` in degrees; unknown values are None."""

    index: int
    codec: str
    width: int
    height: int
    sample_aspect: Fraction = Fraction(1)
    rotation: float = 0.0
    frame_rate: Fraction | None = None
    frames: int | None = None
    duration: float | None = None
    pixel_format: str = ""
    interlaced: bool = False
    transfer: str = ""

    @property
    def displayed(self) -> tuple[int, int]:
        """Width and height in square pixels, with sample aspect and rotation applied."""
        width, height = max(1, round(self.width * self.sample_aspect)), self.height
        quarter_turned = abs(abs(self.rotation) % 180 - 90) < 1
        return (height, width) if quarter_turned else (width, height)

    @property
    def is_hdr(self) -> bool:
        """Whether the picture has a high dynamic range, which has to be mapped for an 8-bit output."""
        return self.transfer in HDR_TRANSFERS


class AudioStream(msgspec.Struct, frozen=True):
    index: int
    codec: str
    channels: int = 0
    sample_rate: int = 0
    duration: float | None = None


class Media(msgspec.Struct, frozen=True):
    """One file. ``duration`` in seconds is what the container claims; ``size`` in bytes."""

    format: str
    size: int
    duration: float | None = None
    start: float = 0.0
    video: VideoStream | None = None
    audio: AudioStream | None = None


class Survey(msgspec.Struct, frozen=True):
    """What can be read of a file, packet by packet, without decoding.

    Ends are seconds from the file's start; ``readable`` is the last of any stream, ``video_length`` the span of the
    picture, which may begin late; ``audio_end`` is None without sound. ``jumps``: how often the timestamps of picture
    or sound run backwards, or leap ahead.
    """

    readable: float
    video_end: float
    video_length: float
    audio_end: float | None
    frames: int
    jumps: int = 0
