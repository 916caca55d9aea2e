from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.workers.video.errors import RequestRefused
from peerd.workers.video.media import AudioStream, Media, Survey, VideoStream
from peerd.workers.video.plan import TranscodeRequest, fit_size, plan_poster, plan_transcode, transcode_arguments


def video(**changes: object) -> VideoStream:
    usual = {"index": 0, "codec": "h264", "width": 1920, "height": 1080, "frame_rate": Fraction(25)}
    return VideoStream(**{**usual, **changes})  # type: ignore[arg-type]


SURVEY = Survey(readable=10.0, video_end=10.0, video_length=10.0, audio_end=10.0, frames=250)
SOUND = AudioStream(index=1, codec="aac", channels=6, sample_rate=48000)


def media(picture: VideoStream, sound: AudioStream | None = SOUND) -> Media:
    return Media(format="mov,mp4", size=1000, duration=10.0, video=picture, audio=sound)


sizes = st.integers(2, 9000)


@given(width=sizes, height=sizes, highest=st.integers(16, 4320))
def test_an_output_is_even_and_never_larger_than_its_source_or_its_bound(width: int, height: int, highest: int) -> None:
    fitted_width, fitted_height = fit_size((width, height), highest)
    assert (fitted_width % 2, fitted_height % 2) == (0, 0)
    assert 2 <= fitted_width <= width
    assert 2 <= fitted_height <= min(height, highest)


@given(width=st.integers(320, 4000), height=st.integers(320, 4000), highest=st.integers(240, 1080))
def test_an_output_keeps_the_shape_of_its_source(width: int, height: int, highest: int) -> None:
    fitted_width, fitted_height = fit_size((width, height), highest)
    # each side is off by less than two pixels
    assert abs(fitted_width - width * fitted_height / height) <= 2 + 2 * width / height


def test_sizes_of_known_sources() -> None:
    for displayed, highest, expected in (
        ((1920, 1080), 720, (1280, 720)),
        ((1280, 720), 1080, (1280, 720)),
        ((1080, 1920), 720, (404, 720)),
        ((641, 361), 720, (640, 360)),
        ((854, 480), 480, (854, 480)),
        ((1920, 800), 720, (1728, 720)),
        ((3, 3), 720, (2, 2)),
    ):
        assert fit_size(displayed, highest) == expected


def test_a_picture_is_measured_as_a_player_shows_it() -> None:
    for stream, displayed in (
        (video(rotation=90), (1080, 1920)),
        (video(rotation=-90), (1080, 1920)),
        (video(rotation=270), (1080, 1920)),
        (video(rotation=180), (1920, 1080)),
        (video(rotation=45), (1920, 1080)),
        (video(width=720, height=576, sample_aspect=Fraction(64, 45)), (1024, 576)),
        (video(width=720, height=576, sample_aspect=Fraction(64, 45), rotation=90), (576, 1024)),
        (video(width=1, height=1, sample_aspect=Fraction(1, 4)), (1, 1)),
    ):
        assert stream.displayed == displayed, stream


def test_sound_is_left_out_where_there_is_none_or_none_is_wanted_and_surround_becomes_stereo() -> None:
    plan = plan_transcode(media(video(), None), SURVEY, TranscodeRequest())
    assert (plan.audio, plan.expected.audio) == (None, None)
    assert "-an" in transcode_arguments(plan, 0)
    assert plan_transcode(media(video()), SURVEY, TranscodeRequest(audio=False)).audio is None
    for sound, channels in ((SOUND, "2"), (AudioStream(index=1, codec="aac", channels=1), "1")):
        arguments = transcode_arguments(plan_transcode(media(video(), sound), SURVEY, TranscodeRequest()), 0)
        assert arguments[arguments.index("-ac") + 1] == channels


def test_only_a_faster_source_is_slowed_to_the_cap() -> None:
    twice = Survey(readable=10.0, video_end=10.0, video_length=10.0, audio_end=10.0, frames=1200)
    fast = plan_transcode(media(video(frame_rate=Fraction(120))), twice, TranscodeRequest(max_fps=60))
    usual = plan_transcode(media(video()), SURVEY, TranscodeRequest(max_fps=60))
    assert (fast.rate_cap, fast.expected.frames) == (60, 600)
    assert (usual.rate_cap, usual.expected.frames) == (None, 250)
    guessed = video(frame_rate=Fraction(90000))
    assert plan_transcode(media(guessed), SURVEY, TranscodeRequest()).rate_cap is None


def test_metadata_never_goes_into_the_output() -> None:
    arguments = transcode_arguments(plan_transcode(media(video()), SURVEY, TranscodeRequest()), 0)
    assert arguments[arguments.index("-map_metadata") + 1] == "-1"
    assert arguments[arguments.index("-map_chapters") + 1] == "-1"


def test_a_senseless_request_is_refused() -> None:
    for request in (TranscodeRequest(height=15), TranscodeRequest(max_fps=0), TranscodeRequest(quality="-x")):
        with pytest.raises(RequestRefused):
            plan_transcode(media(video()), SURVEY, request)
    for at in (-1.0, 10.0, float("nan"), float("inf")):
        with pytest.raises(RequestRefused):
            plan_poster(media(video()), 720, at)


def test_a_poster_is_taken_from_a_tenth_of_the_way_in() -> None:
    plan = plan_poster(media(video()), 360, None)
    assert (plan.at, plan.choose, plan.width, plan.height) == (1.0, True, 640, 360)
