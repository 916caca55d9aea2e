"""What a picture's numbers mean, and the filters that make BT.709 of limited range of them."""

from __future__ import annotations

import msgspec

from peerd.workers.video.media import Colours, VideoStream

_LINES_OF_HD = 720  # by convention players take an untagged picture of fewer lines as BT.601, others as BT.709
_MATRICES = {"bt709": "bt709", "smpte170m": "smpte170m", "bt470bg": "bt470bg", "bt2020": "bt2020nc"}
"""The matrix that goes with primaries."""
_USUAL_MATRICES = frozenset((*_MATRICES.values(), "bt2020c", "fcc", "smpte240m"))
_OTHER_MATRICES = frozenset(("ycgco", "ictcp", "chroma-derived-nc", "chroma-derived-c"))  # zscale alone has them
_WITH_MATRIX = ("yuv", "nv", "p0", "p2", "uyvy", "yuyv", "y2")  # formats of pixels; RGB has none
_TONE_MAP = (
    "zscale=transfer=linear:npl=100,format=gbrpf32le,zscale=primaries=bt709,tonemap=hable:desat=0,"
    "zscale=transfer=bt709:matrix=bt709:range=limited"
)
_TO_BT709 = "zscale=primaries=bt709:transfer=bt709:matrix=bt709:range=limited"
_CURVES_OF_ENCODER = {"bt470m": "gamma22", "bt470bg": "gamma28"}  # other names than those of filters
OUTPUT = Colours("bt709", "bt709", "bt709")
TO_JPEG = ("scale=in_color_matrix=bt709:in_range=tv:out_color_matrix=bt601:out_range=pc", "format=yuvj420p")
"""Filters from there to the colours of a JPEG: BT.601 of full range (JFIF 1.02)."""


def complete(video: VideoStream) -> Colours:
    """Return the colours with defaults in the place of what is not known.

    A high dynamic range is BT.2020 by default; else the primaries tell the matrix, or the number of lines both.

    >>> complete(VideoStream(0, "hevc", 1920, 1080, colours=Colours(transfer="smpte2084")))
    Colours(primaries='bt2020', transfer='smpte2084', matrix='bt2020nc')
    >>> complete(VideoStream(0, "mpeg2video", 720, 576))
    Colours(primaries='bt470bg', transfer='bt709', matrix='bt470bg')
    """
    told = video.colours
    large = min(video.height, video.width) >= _LINES_OF_HD or _is_rgb(video)
    usual = "bt2020" if told.hdr else "bt709" if large else "bt470bg" if video.height == 576 else "smpte170m"
    matrix = told.matrix if told.matrix in _USUAL_MATRICES | _OTHER_MATRICES else ""
    by_matrix = "bt2020" if matrix.startswith("bt2020") else matrix if matrix in _MATRICES else usual
    primaries = told.primaries or by_matrix
    return Colours(primaries, told.transfer or "bt709", matrix or _MATRICES.get(primaries, _MATRICES[usual]))


def _is_rgb(video: VideoStream) -> bool:
    return bool(video.pixel_format) and not video.pixel_format.startswith((*_WITH_MATRIX, "gray", "ya"))


def scale_filters(video: VideoStream, size: str) -> list[str]:
    """Return the filters that scale to ``size``, the first arguments of ffmpeg's filter, and convert the colours."""
    colours = complete(video)
    told = video.colours
    # What frames say themselves may change in the middle.
    tags = _tags(
        Colours(
            "" if told.primaries == colours.primaries else colours.primaries,
            "" if told.transfer == colours.transfer else colours.transfer,
            "" if told.matrix == colours.matrix or _is_rgb(video) else colours.matrix,
        )
    )
    if needs_mapping(video):
        mapping = _TONE_MAP if colours.hdr else _TO_BT709
        return [*tags, f"scale={size}", mapping, "setsar=1", "format=yuv420p", *_tags(OUTPUT, "tv")]
    output = output_colours(video)
    scaled = f"scale={size}:out_color_matrix=bt709:out_range=tv"
    return [*tags, scaled, "setsar=1", "format=yuv420p", *_tags(output, "tv")]


def needs_mapping(video: VideoStream) -> bool:
    """Whether its colours, not only their numbers, have to be converted."""
    colours = complete(video)
    return colours.hdr or colours.primaries == "bt2020" or colours.matrix in _OTHER_MATRICES


def output_colours(video: VideoStream) -> Colours:
    """Return what the output's numbers mean: primaries and curve of ordinary pictures are kept."""
    return OUTPUT if needs_mapping(video) else msgspec.structs.replace(complete(video), matrix="bt709")


def encoder_arguments(video: VideoStream) -> list[str]:
    """Return the arguments that tag the output; older versions of ffmpeg need them beside the tags of the frames."""
    colours = output_colours(video)
    curve = _CURVES_OF_ENCODER.get(colours.transfer, colours.transfer)
    tags = ("-color_primaries", colours.primaries, "-color_trc", curve, "-colorspace", colours.matrix)
    return [*tags, "-color_range", "tv"]


def _tags(colours: Colours, color_range: str = "") -> list[str]:
    values = {"color_primaries": colours.primaries, "color_trc": colours.transfer, "colorspace": colours.matrix}
    values["range"] = color_range
    given = ":".join(f"{name}={value}" for name, value in values.items() if value)
    return [f"setparams={given}"] if given else []
