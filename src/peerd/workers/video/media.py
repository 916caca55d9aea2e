"""Properties of a media file as values."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from peerd.workers.video.formats import LENGTH_FROM_ZERO

HDR_TRANSFERS = frozenset({"smpte2084", "arib-std-b67"})


class Colours(msgspec.Struct, frozen=True):
    """What the numbers of a picture mean, by the names of ffmpeg; '' is unknown."""

    primaries: str = ""
    transfer: str = ""
    matrix: str = ""

    @property
    def hdr(self) -> bool:
        """Whether it is a high dynamic range, which has to be mapped for an 8-bit output."""
        return self.transfer in HDR_TRANSFERS


class Shape(msgspec.Struct, frozen=True):
    """How frames are stored: width and height in samples, the aspect of a sample, the format of pixels."""

    width: int
    height: int
    sample_aspect: Fraction
    pixel_format: str

    @property
    def area(self) -> Fraction:
        return self.width * self.height * self.sample_aspect


class VideoStream(msgspec.Struct, frozen=True):
    """A picture. ``width`` and ``height`` are as stored; ``rotation`` in degrees; unknown values are None.

    ``still``: marked as a cover, a still or a thumbnail. ``interlaced``: frames have two fields each. ``combed`` is
    the first field, 'tff' or 'bff', of frames that are interlaced but do not say so. ``fields``: each packet is one
    field, and the decoder does not weave them. ``changes``: frames have several shapes; these are of the largest.
    """

    index: int
    codec: str
    width: int
    height: int
    sample_aspect: Fraction = Fraction(1)
    rotation: float = 0.0
    frame_rate: Fraction | None = None
    frames: int | None = None
    pixel_format: str = ""
    interlaced: bool = False
    combed: str = ""
    fields: bool = False
    colours: Colours = Colours()
    changes: bool = False
    default: bool = False
    still: bool = False
    programs: frozenset[int] = frozenset()

    @property
    def displayed(self) -> tuple[int, int]:
        """Width and height in square pixels, with sample aspect and rotation applied."""
        width, height = max(1, round(self.width * self.sample_aspect)), self.height
        return (height, width) if self.quarter_turned else (width, height)

    @property
    def quarter_turned(self) -> bool:
        return abs(abs(self.rotation) % 180 - 90) < 1

    def __str__(self) -> str:
        return f"picture {self.index} ({self.codec}, {self.width}x{self.height})"


class AudioStream(msgspec.Struct, frozen=True):
    """A sound. ``layout`` names its channels, '' if unknown. ``aside``: marked as a commentary or for the impaired."""

    index: int
    codec: str
    channels: int = 0
    layout: str = ""
    sample_rate: int = 0
    language: str = ""
    default: bool = False
    aside: bool = False
    programs: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return f"sound {self.index} ({', '.join(filter(None, [self.codec, f'{self.channels} ch', self.language]))})"


class Media(msgspec.Struct, frozen=True):
    """A file as its headers describe it. ``duration`` in seconds is the container's claim; ``size`` in bytes.

    ``videos`` and ``sounds`` are all its streams. ``video`` is the film that was chosen of them, ``audio`` its sound
    (one stream, or two mono ones: left and right), ``left_out`` describes the others.
    """

    format: str
    size: int
    duration: float | None = None
    start: float = 0.0
    videos: tuple[VideoStream, ...] = ()
    sounds: tuple[AudioStream, ...] = ()
    video: VideoStream | None = None
    audio: tuple[AudioStream, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def length(self) -> float | None:
        """The seconds that the container claims, from its start; None where it claims nothing."""
        begin = self.start if self.is_one_of(LENGTH_FROM_ZERO) else 0.0
        return self.duration - begin if self.duration is not None else None

    def is_one_of(self, formats: frozenset[str]) -> bool:
        """Whether one of the names of its container is in a list."""
        return not formats.isdisjoint(self.format.split(","))
