"""Pure functions beside the plan: output of ffprobe, progress, failures, versions, settings, damage."""

from __future__ import annotations

import pickle
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.workers.video.errors import (
    DiskFull,
    EncoderFailed,
    FormatRefused,
    MediaDamaged,
    MediaTooLarge,
    MediaUnreadable,
    Misconfigured,
    OutputWrong,
    VideoError,
)
from peerd.workers.video.media import Media, Survey, VideoStream
from peerd.workers.video.programs.ffmpeg import FfmpegProgress, FfmpegResult, ProgressReader
from peerd.workers.video.programs.ffmpeg_errors import explain_failure, explain_unreadable
from peerd.workers.video.programs.ffmpeg_tools import read_version
from peerd.workers.video.programs.ffprobe_output import PacketCounter, parse_probe
from peerd.workers.video.programs.program import ErrorLines
from peerd.workers.video.settings import read_settings
from peerd.workers.video.verify import find_damage, missing_seconds, require_match

SETTINGS = read_settings({"directory": "/"})


def test_an_answer_with_nothing_known_is_still_read_and_one_without_sense_refused() -> None:
    answer = b'{"streams": [{"index": 0, "codec_type": "video", "sample_aspect_ratio": "N/A"}], "format": {}}'
    found = parse_probe(answer)
    assert found.video is not None
    assert (found.duration, found.video.frame_rate, found.audio) == (None, None, None)
    assert found.video.sample_aspect == 1
    for answer in (b"", b"{", b"[]", b'{"streams": [{"index": "x"}]}', b"\xff\xfe"):
        with pytest.raises(MediaUnreadable):
            parse_probe(answer)


def test_the_streams_of_an_answer_are_chosen_and_their_durations_read_from_the_tags_of_matroska() -> None:
    answer = b"""{"streams": [
        {"index": 0, "codec_type": "video", "codec_name": "mjpeg", "disposition": {"attached_pic": 1}},
        {"index": 1, "codec_type": "video", "codec_name": "h264", "avg_frame_rate": "30000/1001",
        "tags": {"DURATION": "00:01:02.500000000"}}]}"""
    found = parse_probe(answer).video
    assert found is not None
    assert (found.index, found.duration, found.frame_rate) == (1, 62.5, Fraction(30000, 1001)), "and not the cover"
    stream = '{"index": %d, "codec_type": "audio", "disposition": {"default": %d}}'
    for second_is_default, expected in ((1, 2), (0, 1)):
        text = f'{{"streams": [{stream % (1, 0)}, {stream % (2, second_is_default)}]}}'
        assert parse_probe(text.encode()).audio.index == expected  # type: ignore[union-attr]


@given(st.text(), st.text(), st.text())
def test_no_text_in_an_answer_breaks_the_reader(duration: str, rate: str, aspect: str) -> None:
    kinds = {"duration": duration, "avg_frame_rate": rate, "sample_aspect_ratio": aspect}
    stream = {"index": 0, "codec_type": "video", **kinds}
    found = parse_probe(msgspec.json.encode({"streams": [stream], "format": {"duration": duration}}))
    assert found.video is not None
    assert found.video.displayed >= (1, 0)


def test_packets_outside_the_edit_list_are_not_counted() -> None:
    counter = PacketCounter(Media(format="mov", size=1, video=VideoStream(0, "h264", 2, 2)))
    for line in (b"0,-0.04,-0.04,0.04,KD_\n", b"0,0.00,0.00,0.04,K__\n", b"0,0.04,N/A,0.04,___\n", b"nonsense\n"):
        counter.add(line)
    assert counter.survey() == Survey(readable=0.08, video_end=0.08, video_length=0.08, audio_end=None, frames=2)
    counter = PacketCounter(Media(format="avi", size=1, video=VideoStream(0, "h264", 2, 2)))
    counter.add(b"0,N/A,1.00,0.04,K__\n")
    assert counter.survey().video_end == 1.04, "by the time to be decoded"


def blocks(*texts: str) -> list[bytes]:
    return [line.encode() for text in texts for line in text.split()]


def test_progress_is_read_from_microseconds() -> None:
    reader = ProgressReader(10.0)
    block = "frame=50 out_time_us=5000000 out_time_ms=5000000 speed=2.0x progress=continue"
    reports = [reader.feed(line) for line in blocks(block)]
    assert reports[-1] == FfmpegProgress(0.5, 5.0, 50, 2.0, 2.5)
    assert reports[:-1] == [None] * 4
    reader = ProgressReader(10.0)
    lines = blocks("out_time_us=N/A speed=N/A progress=continue", "out_time_us=-40000 progress=continue")
    known = [report for line in lines if (report := reader.feed(line))]
    assert [report.fraction for report in known] == [0.0, 0.0]


@given(st.lists(st.integers(-(10**7), 10**8), max_size=30), st.floats(0, 60))
def test_progress_only_grows_and_ends_at_one(times: list[int], total: float) -> None:
    reader = ProgressReader(total)
    texts = [f"out_time_us={time} progress=continue" for time in times] + ["progress=end"]
    fractions = [report.fraction for line in blocks(*texts) if (report := reader.feed(line))]
    assert fractions == sorted(fractions)
    assert fractions[0] >= 0.0
    assert fractions[-1] == 1.0


def test_a_report_that_does_not_grow_is_a_stall() -> None:
    now = [0.0]
    reader = ProgressReader(10.0, clock=lambda: now[0])
    for at in (0.0, 30.0, 60.0):
        now[0] = at
        for line in blocks("out_time_us=1000000 total_size=48 progress=continue"):
            reader.feed(line)
    assert reader.stalled == 60.0
    for line in blocks("out_time_us=1000000 total_size=49 progress=continue"):
        reader.feed(line)
    assert reader.stalled == 0.0


def test_each_failure_of_ffmpeg_has_its_error() -> None:
    for status, line, kind in (
        (1, "av_interleaved_write_frame(): No space left on device", DiskFull),
        (-25, "", MediaTooLarge),
        (-24, "", MediaTooLarge),
        (1, "Error: Cannot allocate memory", MediaTooLarge),
        (1, "source: Invalid data found when processing input", MediaDamaged),
        (69, "Conversion failed!", MediaDamaged),
        (1, "[hls] Format not on whitelist 'mov'", FormatRefused),
        (-9, "", EncoderFailed),
        (-9, "Error while decoding stream #0:0", EncoderFailed),
        (1, "Cannot determine format of input stream 0:0 after EOF", MediaDamaged),
        (1, "[qtrle] Codec (qtrle) not on whitelist 'h264,aac'", FormatRefused),
        (187, "something new", EncoderFailed),
    ):
        told, limits = [line] if line else [], {"memory": 1, "output": 1}
        error: VideoError = explain_failure("a.mp4", "encoding", status, told, directory="/m", **limits)
        assert type(error) is kind, (status, line)
        assert str(error)


def test_each_failure_of_ffprobe_has_its_error() -> None:
    for status, line, kind in (
        (1, "the file: Invalid data found when processing input", MediaUnreadable),
        (1, "[mov] Cannot allocate memory", MediaTooLarge),
        (1, "[hls] Format not on whitelist 'mov'", FormatRefused),
        (-11, "", MediaUnreadable),
        (-9, "[h264] no frame!", EncoderFailed),
    ):
        error: VideoError = explain_unreadable("a.mp4", "probing", status, [line] if line else [], memory=2**30)
        assert type(error) is kind, (status, line)
        assert str(error)
    error = explain_unreadable("a.mp4", "probing", 1, ["moov atom not found"], memory=1)
    again = pickle.loads(pickle.dumps(error))  # it survives the way between processes
    assert (type(again), str(again), again.data) == (type(error), str(error), error.data)


def test_error_lines_are_counted_all_and_kept_some() -> None:
    lines = ErrorLines()
    lines.feed(b"[h264 @ 0x55d1] bad \x1b[31m thing in file:/proc/self/fd/17\nsec")
    lines.feed(b"ond\n" * 100)
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


def test_options_with_units_are_read() -> None:
    settings = read_settings({"directory": "/", "stall": "1.5m", "max_memory": "4GiB", "max_wall": 30})
    assert (settings.stall, settings.max_memory, settings.max_wall) == (90.0, 4 * 2**30, 30.0)


def test_each_wrong_option_is_named_with_all_others() -> None:
    table: list[tuple[str, object, str]] = [
        ("thread", 1, "there is no such option, only directory, scratch, threads"),
        ("threads", 65, "<= 64"),
        ("nice", True, "got `bool`"),
        ("stall", "soon", "'soon' is not a duration"),
        ("stall", 0, "> 0"),
        ("max_wall", float("inf"), "a finite number"),
        ("max_source", "1 elephant", "'1 elephant' is not a size"),
        ("scratch", 3, "not int"),
    ]
    for name, value, reason in table:
        with pytest.raises(Misconfigured) as caught:
            read_settings({name: value, "max_errors": -1})
        for expected in (f"{name}: ", reason, "directory: it is missing", "max_errors: "):
            assert expected in str(caught.value)


def test_a_source_shorter_than_its_claim_is_damaged_and_a_minute_of_a_film_not_lost_in_the_tolerance() -> None:
    def survey(readable: float) -> Survey:
        frames = round(readable * 25)
        return Survey(readable=readable, video_end=readable, video_length=readable, audio_end=None, frames=frames)

    claim = Media(format="matroska", size=1, duration=55.15)
    assert find_damage(claim, survey(24.75)) == "it claims 55.15 s, but only 24.75 s (45 %) can be read"
    assert find_damage(claim, survey(55.0)) is None
    assert find_damage(Media(format="matroska", size=1), survey(24.75)) is None
    claim = Media(format="matroska", size=1, duration=7200.0)
    for readable, damaged in ((7138.0, True), (7194.9, True), (7195.1, False)):
        assert (find_damage(claim, survey(readable)) is not None) == damaged
        assert missing_seconds(claim, survey(readable)) == pytest.approx(7200.0 - readable)


def test_a_wrong_output_is_the_sources_fault_only_when_it_gave_errors() -> None:
    report = FfmpegProgress(1.0, 1.0, 1, None, None)
    whole = Survey(readable=1.0, video_end=1.0, video_length=1.0, audio_end=None, frames=25)
    twice = Survey(readable=1.0, video_end=1.0, video_length=1.0, audio_end=None, frames=50, jumps=1)
    require_match("a", FfmpegResult(report, 10, ["odd"]), [], twice, SETTINGS)
    with pytest.raises(MediaDamaged):
        require_match("a", FfmpegResult(report, 11, ["odd"]), [], whole, SETTINGS)
    with pytest.raises(MediaDamaged):
        require_match("a", FfmpegResult(report, 1, ["odd"]), ["it is short"], whole, SETTINGS)
    with pytest.raises(MediaDamaged, match="backwards"):
        require_match("a", FfmpegResult(report, 0, []), ["it is short"], twice, SETTINGS)
    with pytest.raises(OutputWrong):
        require_match("a", FfmpegResult(report, 0, []), ["it is short"], whole, SETTINGS)
