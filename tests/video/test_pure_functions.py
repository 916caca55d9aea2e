"""Pure functions: the plan, output of ffprobe, progress, failures, versions, settings, damage."""

from __future__ import annotations

import pickle
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.workers.video import errors
from peerd.workers.video.formats import CODECS
from peerd.workers.video.media import AudioStream, Media, VideoStream
from peerd.workers.video.plan import TranscodeRequest, fit_size, plan_transcode, transcode_arguments
from peerd.workers.video.poster import plan_poster
from peerd.workers.video.programs.ffmpeg import FfmpegProgress, FfmpegResult, ProgressReader
from peerd.workers.video.programs.ffmpeg_errors import explain_failure
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools, ProgramContext, read_version
from peerd.workers.video.programs.ffprobe_output import parse_probe
from peerd.workers.video.programs.program import ErrorLines
from peerd.workers.video.settings import read_settings
from peerd.workers.video.streams import choose_streams
from peerd.workers.video.timeline import PacketReader, Span, Timeline
from peerd.workers.video.verify import find_damage, missing_seconds, require_match

SETTINGS = read_settings({"directory": "/"})
CONTEXT = ProgramContext(FfmpegTools("ffmpeg", "ffprobe", "5.1", frozenset(), {}), SETTINGS, "a.mp4")


def test_an_answer_without_sense_is_refused_and_a_cover_is_not_the_film() -> None:
    for answer in (b"", b"[]", b'{"streams": [{"index": "x"}]}', b"\xff\xfe"):
        with pytest.raises(errors.MediaUnreadable):
            parse_probe(answer)
    unknown = b'{"streams": [{"index": 0, "codec_type": "video", "sample_aspect_ratio": "N/A"}], "format": {}}'
    found = parse_probe(unknown)
    assert [found.duration, found.videos[0].frame_rate, found.sounds] == [None, None, ()]
    assert found.videos[0].sample_aspect == 1
    answer = b"""{"streams": [
        {"index": 0, "codec_type": "video", "codec_name": "mjpeg", "disposition": {"attached_pic": 1}},
        {"index": 1, "codec_type": "video", "codec_name": "h264", "avg_frame_rate": "30000/1001"}]}"""
    picture = choose_streams(parse_probe(answer), CODECS).video
    assert picture is not None
    assert (picture.index, picture.frame_rate) == (1, Fraction(30000, 1001)), "not the cover"


@given(st.text(), st.text(), st.text())
def test_no_text_in_an_answer_breaks_the_reader(duration: str, rate: str, aspect: str) -> None:
    kinds = {"duration": duration, "avg_frame_rate": rate, "sample_aspect_ratio": aspect}
    stream = {"index": 0, "codec_type": "video", **kinds}
    found = parse_probe(msgspec.json.encode({"streams": [stream], "format": {"duration": duration}}))
    assert found.videos[0].displayed >= (1, 0)


def test_packets_outside_the_edit_list_are_not_counted_and_missing_times_follow_each_other() -> None:
    def read(container: str, *lines: bytes) -> Span:
        sounds = (AudioStream(1, "aac"),)
        reader = PacketReader(Media(format=container, size=1, videos=(VideoStream(0, "h264", 2, 2),), sounds=sounds))
        for line in lines:
            reader.add(line)
        return reader.spans[0]

    edited = read("mov", b"0,-0.04,-0.04,0.04,KD_", b"0,0.00,0.00,0.04,K__", b"0,0.04,N/A,0.04,___", b"nonsense")
    assert (edited.begin, edited.end, edited.frames, edited.keys) == (0.0, 0.08, 2, 1)
    assert read("avi", b"0,N/A,1.00,0.04,K__").end == 1.04, "by the time to be decoded"
    assert read("h264", *[b"0,N/A,N/A,0.04,K__"] * 3).end == pytest.approx(0.12)
    leap = (b"0,0.00,0.00,0.04,K__", b"0,30.00,30.00,0.04,K__", b"0,30.04,30.04,0.04,K__", b"0,0.00,0.00,0.04,K__")
    assert read("mpegts", *leap).end == pytest.approx(0.16), "ffmpeg goes on as if nothing had happened"
    kept = read("matroska", *leap)
    assert (round(kept.end, 3), kept.gap, kept.jumps) == (30.08, 30.0, 1)
    begun = read(
        "mpegts", b"0,0.40,0.30,0.1,___", b"0,0.60,0.40,0.1,K__", b"0,0.50,0.50,0.1,___", b"0,0.70,0.60,0.1,___"
    )
    assert (begun.undecodable, begun.frames, begun.starting_at(0.6).frames) == (2, 4, 2)


def feed(reader: ProgressReader, *texts: str) -> list[FfmpegProgress]:
    """The reports after these lines."""
    reports = [reader.feed(line.encode()) for text in texts for line in text.split()]
    return [report for report in reports if report is not None]


def test_progress_is_read_from_microseconds() -> None:
    block = "frame=50 out_time_us=5000000 out_time_ms=5000000 speed=2.0x progress=continue"
    assert feed(ProgressReader(10.0), block) == [FfmpegProgress(0.5, 5.0, 50, 2.0, 2.5)]


@given(st.lists(st.integers(-(10**7), 10**8) | st.just("N/A"), max_size=30), st.floats(0, 60))
def test_progress_only_grows_and_ends_at_one(times: list[int | str], total: float) -> None:
    texts = [f"out_time_us={time} progress=continue" for time in times] + ["progress=end"]
    fractions = [report.fraction for report in feed(ProgressReader(total), *texts)]
    assert fractions == sorted(fractions)
    assert (fractions[0] >= 0.0, fractions[-1]) == (True, 1.0)


def test_a_report_that_does_not_grow_is_a_stall() -> None:
    now = [0.0]
    reader = ProgressReader(10.0, clock=lambda: now[0])
    for now[0] in (0.0, 30.0, 60.0):
        feed(reader, "out_time_us=1000000 total_size=48 progress=continue")
    assert reader.stalled == 60.0
    feed(reader, "out_time_us=1000000 total_size=49 progress=continue")
    assert reader.stalled == 0.0


def test_each_failure_of_ffmpeg_and_of_ffprobe_has_its_error() -> None:
    for status, line, kind in (
        (1, "av_interleaved_write_frame(): No space left on device", errors.DiskFull),
        (-25, "", errors.MediaTooLarge),
        (-24, "", errors.MediaTooLarge),
        (1, "Error: Cannot allocate memory", errors.MediaTooLarge),
        (1, "source: Invalid data found when processing input", errors.MediaDamaged),
        (1, "[hls] Format not on whitelist 'mov'", errors.FormatRefused),
        (-9, "Error while decoding stream #0:0", errors.EncoderFailed),
        (1, "Cannot determine format of input stream 0:0 after EOF", errors.MediaDamaged),
        (187, "something new", errors.PlanFailed),
        (1, "file: Input/output error", errors.EncoderFailed),
        (127, "not found", errors.EncoderFailed),
    ):
        told = [line] if line else []
        error: errors.VideoError = explain_failure(CONTEXT, "encoding", status, told)
        assert type(error) is kind, (status, line)
    for status, line, kind in (
        (1, "the file: Invalid data found when processing input", errors.MediaUnreadable),
        (1, "[mov] Cannot allocate memory", errors.MediaTooLarge),
        (1, "[hls] Format not on whitelist 'mov'", errors.FormatRefused),
        (-11, "", errors.MediaUnreadable),
        (-9, "[h264] no frame!", errors.EncoderFailed),
    ):
        error = explain_failure(CONTEXT, "probing", status, [line] if line else [], probing=True)
        assert type(error) is kind, (status, line)
    error = explain_failure(CONTEXT, "probing", 1, ["moov atom not found"], probing=True)
    again = pickle.loads(pickle.dumps(error))  # it survives the way between processes
    assert (type(again), str(again), again.data) == (type(error), str(error), error.data)


def test_error_lines_are_counted_all_and_kept_some() -> None:
    lines = ErrorLines()
    lines.feed(b"[h264 @ 0x55d1] bad \x1b[31m thing in file:/proc/self/fd/17\nsec")
    lines.feed(b"ond\n" * 100)
    lines.feed(b"[x] Codec (x) not on whitelist 'h264'\n")  # of a stream that is not used: no error
    lines.feed(b"x" * 10**6)
    lines.feed(b"\nthe reason at last")
    lines.feed(b"")
    assert lines.count == 103
    assert lines.first[0] == "[h264] bad ?[31m thing in the file"
    assert lines.kept[-1] == "the reason at last"
    assert (len(lines.first), len(lines.kept)) == (20, 40)
    assert max(map(len, lines.kept)) <= 400


def test_versions_are_read_and_other_and_old_programs_refused() -> None:
    for banner, version in (
        ("ffmpeg version 5.1.9-0+deb12u1 Copyright", "5.1.9-0+deb12u1"),
        ("ffmpeg version n8.1.2 Copyright", "n8.1.2"),
        ("ffprobe version N-109542-g1bf1146 Copyright", "N-109542-g1bf1146"),
    ):
        assert read_version(banner) == version
    for banner in ("", "avconv version 12", "ffmpeg version 4.4.2", "ffmpeg version n5.0"):
        with pytest.raises(ValueError, match=r"older|like ffmpeg"):
            read_version(banner)


def test_options_with_units_are_read_and_each_wrong_one_is_named_with_all_others() -> None:
    settings = read_settings({"directory": "/", "stall": "1.5m", "max_memory": "4GiB", "max_wall": 30})
    assert (settings.stall, settings.max_memory, settings.max_wall) == (90.0, 4 * 2**30, 30.0)
    table: list[tuple[str, object, str]] = [
        ("thread", 1, "there is no such option, only directory, scratch, threads"),
        ("threads", 65, "<= 64"),
        ("stall", "soon", "'soon' is not a duration"),
        ("stall", 0, "> 0"),
        ("max_wall", float("inf"), "a finite number"),
        ("max_source", "1 elephant", "'1 elephant' is not a size"),
    ]
    for name, value, reason in table:
        with pytest.raises(errors.Misconfigured) as caught:
            read_settings({name: value, "max_errors": -1})
        for expected in (f"{name}: ", reason, "directory: it is missing", "max_errors: "):
            assert expected in str(caught.value)


def seen(readable: float, frames: int, jumps: int = 0) -> Timeline:
    last = readable - 0.04
    span = Span(begin=0.0, end=readable, last=last, kept_after=last, frames=frames, kept=frames)
    return Timeline(readable, span, jumps=jumps)


def test_a_source_shorter_than_its_claim_is_damaged_and_a_minute_of_a_film_not_lost_in_the_tolerance() -> None:
    claim = Media(format="matroska", size=1, duration=55.15)
    assert find_damage(claim, seen(24.75, 619)) == "it claims 55.15 s, but only 24.75 s (45 %) can be read"
    assert find_damage(Media(format="matroska", size=1), seen(24.75, 619)) is None
    claim = Media(format="matroska", size=1, duration=7200.0)
    for readable, damaged in ((7138.0, True), (7194.9, True), (7195.1, False)):
        survey = seen(readable, round(readable * 25))
        assert (find_damage(claim, survey) is not None) == damaged
        assert missing_seconds(claim, survey) == pytest.approx(7200.0 - readable)


def test_a_wrong_output_is_the_sources_fault_only_when_it_gave_errors() -> None:
    report, whole, twice = FfmpegProgress(1.0, 1.0, 1, None, None), seen(1.0, 25), seen(1.0, 50, jumps=1)
    short = ["it is short"]
    require_match("a", FfmpegResult(report, 10, ["odd"]), [], twice, SETTINGS)
    for count, found, survey, kind, text in (
        (11, [], whole, errors.MediaDamaged, None),
        (1, short, whole, errors.MediaDamaged, None),
        (0, short, twice, errors.MediaDamaged, "backwards"),
        (0, short, whole, errors.PlanFailed, None),
    ):
        with pytest.raises(kind, match=text):
            require_match("a", FfmpegResult(report, count, ["odd"]), found, survey, SETTINGS)


def video(**changes: object) -> VideoStream:
    usual = {"index": 0, "codec": "h264", "width": 1920, "height": 1080, "frame_rate": Fraction(25)}
    return VideoStream(**{**usual, **changes})  # type: ignore[arg-type]


TIMELINE = msgspec.structs.replace(seen(10.0, 250), audio_end=10.0)
SOUND = AudioStream(index=1, codec="aac", channels=6, sample_rate=48000)


def media(picture: VideoStream, sound: AudioStream | None = SOUND) -> Media:
    return Media(format="mov,mp4", size=1000, duration=10.0, video=picture, audio=(sound,) if sound else ())


sizes = st.integers(2, 9000)


@given(width=sizes, height=sizes, highest=st.integers(16, 4320))
def test_an_output_is_even_and_never_larger_than_its_source_or_its_bound(width: int, height: int, highest: int) -> None:
    fitted_width, fitted_height = fit_size((width, height), highest)
    assert (fitted_width % 2, fitted_height % 2) == (0, 0)
    assert 2 <= fitted_width <= width
    assert 2 <= fitted_height <= height
    assert min(fitted_width, fitted_height) <= highest


@given(width=st.integers(320, 4000), height=st.integers(320, 4000), highest=st.integers(240, 1080))
def test_an_output_keeps_the_shape_of_its_source(width: int, height: int, highest: int) -> None:
    fitted_width, fitted_height = fit_size((width, height), highest)
    # each side is off by less than two pixels
    assert abs(fitted_width - width * fitted_height / height) <= 2 + 2 * width / height


def test_sizes_of_known_sources() -> None:
    for displayed, highest, expected in (
        ((1920, 1080), 720, (1280, 720)),
        ((1080, 1920), 720, (720, 1280)),
        ((641, 361), 720, (640, 360)),
        ((1920, 800), 720, (1728, 720)),
    ):
        assert fit_size(displayed, highest) == expected


def test_a_picture_is_measured_as_a_player_shows_it() -> None:
    tv = {"width": 720, "height": 576, "sample_aspect": Fraction(64, 45)}
    for stream, displayed in (
        (video(rotation=-90), (1080, 1920)),
        (video(rotation=270), (1080, 1920)),
        (video(rotation=180), (1920, 1080)),
        (video(rotation=45), (1920, 1080)),
        (video(**tv), (1024, 576)),
        (video(**tv, rotation=90), (576, 1024)),
        (video(width=1, height=1, sample_aspect=Fraction(1, 4)), (1, 1)),
    ):
        assert stream.displayed == displayed, stream


def test_sound_is_left_out_where_there_is_none_or_none_is_wanted_surround_becomes_stereo_and_metadata_nothing() -> None:
    plan = plan_transcode(media(video(), None), TIMELINE, TranscodeRequest())
    assert (plan.audio, plan.expected.audio, "-an" in transcode_arguments(plan, 0)) == ((), None, True)
    assert plan_transcode(media(video()), TIMELINE, TranscodeRequest(audio=False)).audio == ()
    for sound, channels in ((SOUND, "2"), (AudioStream(index=1, codec="aac", channels=1), "1")):
        arguments = transcode_arguments(plan_transcode(media(video(), sound), TIMELINE, TranscodeRequest()), 0)
        options = {name: arguments[arguments.index(name) + 1] for name in ("-ac", "-map_metadata", "-map_chapters")}
        assert options == {"-ac": channels, "-map_metadata": "-1", "-map_chapters": "-1"}


def test_only_a_faster_source_is_slowed_to_the_cap() -> None:
    def planned(*times: float) -> tuple[int | None, int]:
        reader = PacketReader(Media(format="mov", size=1, videos=(video(index=0),)), max_fps=60)
        for time in times:
            reader.add(b"0,%.3f,%.3f,0.008,K__" % (time, time))
        film = media(video(index=0), None)
        plan = plan_transcode(film, reader.timeline(film), TranscodeRequest(max_fps=60))
        return plan.rate_cap, plan.expected.frames

    assert planned(*[n / 120 for n in range(1200)]) == (60, 600)
    assert planned(*[n / 60 for n in range(600)]) == (None, 600), "of milliseconds"
    assert planned(*[n / 24 for n in range(240)], *[10 + n / 120 for n in range(1200)]) == (60, 240 + 600)


def test_a_poster_is_taken_from_a_tenth_of_the_way_in() -> None:
    plan = plan_poster(media(video()), 360, None)
    assert (plan.at, plan.begin) == (None, 1.0)
