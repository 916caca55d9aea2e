"""Which picture of a file is the film, and which sound belongs to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from peerd.workers.video.media import AudioStream, Media, VideoStream
from peerd.workers.video.timeline import Span

_FEW, _SHORT = 10, 4
"""A picture of less than a tenth of the frames, or a quarter of the length, of another is a still or a preview."""


def choose_streams(media: Media, codecs: Collection[str], spans: Mapping[int, Span] | None = None) -> Media:
    """Choose the film and its sound among the streams whose codec is in ``codecs``.

    The film is no cover, still or thumbnail; then the default, the largest, the first decides. Its sound is of the
    same program; the default, else the first, and no commentary where there is another. Two mono tracks of one recorder
    are left and right. ``spans`` has the streams that have packets; None: not known.
    """
    videos = [each for each in media.videos if spans is None or each.index in spans]
    sounds = [each for each in media.sounds if spans is None or each.index in spans]
    films = _without_stills([each for each in videos if each.codec in codecs], spans or {})
    video = max(films, key=lambda each: (each.default, each.width * each.height, -each.index), default=None)
    audio = _sound_of(video, [each for each in sounds if each.codec in codecs], media) if video is not None else ()
    left_out = tuple(str(each) for each in (*videos, *sounds) if each is not video and each not in audio)
    return msgspec.structs.replace(media, sounds=tuple(sounds), video=video, audio=audio, left_out=left_out)


def _without_stills(videos: list[VideoStream], spans: Mapping[int, Span]) -> list[VideoStream]:
    unmarked = [each for each in videos if not each.still]
    moving = [each for each in videos if each.index in spans and spans[each.index].frames > 1]
    videos = unmarked or moving
    for name, share in (("frames", _FEW), ("length", _SHORT)):
        sizes = {each.index: getattr(spans[each.index], name) for each in videos if each.index in spans}
        most = max(sizes.values(), default=0)
        videos = [each for each in videos if sizes.get(each.index, most) * share >= most]
    return videos


def _sound_of(video: VideoStream, sounds: list[AudioStream], media: Media) -> tuple[AudioStream, ...]:
    same_program = [each for each in sounds if each.programs & video.programs]
    ranked = sorted(same_program or sounds, key=lambda each: (each.aside, not each.default))
    other = next((each for each in ranked[1:] if _are_a_pair(ranked[0], each, media)), None)
    return (ranked[0], other) if other is not None else tuple(ranked[:1])


def _are_a_pair(left: AudioStream, right: AudioStream, media: Media) -> bool:
    """Whether two mono tracks are the two microphones of a recorder, and not two languages or a commentary."""
    kinds = {(each.codec, each.sample_rate, each.channels, each.language) for each in (left, right)}
    recorded = left.codec.startswith("pcm_") or (
        media.is_one_of(frozenset(("mov", "mxf"))) and left.default and right.default and not left.language
    )
    return len(kinds) == 1 and left.channels == 1 and recorded and not (left.aside or right.aside)
