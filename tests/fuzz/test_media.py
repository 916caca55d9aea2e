"""Media from strangers: a name is only a name, and whatever the prober shows is described or refused."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.workers.video.errors import MediaUnreadable
from peerd.workers.video.formats import CODECS
from peerd.workers.video.jobs import probe
from peerd.workers.video.media import AudioStream, Media, VideoStream
from peerd.workers.video.plan import TranscodeRequest, plan_transcode, transcode_arguments
from peerd.workers.video.programs.ffprobe_output import Look, parse_probe
from peerd.workers.video.source import seen
from peerd.workers.video.streams import choose_streams
from peerd.workers.video.timeline import PacketReader
from tests.fuzz import values
from tests.fuzz.conftest import searched
from tests.video.media_helpers import RecordingContext, make_clip


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


@pytest.mark.slow
def test_a_name_is_only_a_name(media: Path) -> None:
    clip = make_clip(media / "clip.mp4", size="64x36", seconds=0.4).read_bytes()
    for name in (
        "-i.mp4", "-f lavfi -i testsrc.mp4", "concat:a|b.mp4", "file:a.mp4", "pipe:0", "data:,a.mp4", "http:a.mp4",
        "%03d.mp4", "a?b#c.mp4", "[a].mp4", "a b'\".mp4", "é\U0001f600.mp4", "subfile,,start,0,end,9,,:a.mp4", "~.mp4",
        "$HOME.mp4",
    ):  # fmt: skip
        (media / name).write_bytes(clip)
        assert asyncio.run(probe(RecordingContext(media), name))["video"]["codec"] == "h264", name


MEMBERS = (
    "index", "codec_type", "codec_name", "width", "height", "sample_aspect_ratio", "avg_frame_rate", "nb_frames",
    "duration", "channels", "sample_rate", "tags", "disposition", "side_data_list", "color_space", "color_transfer",
    "channel_layout", "pix_fmt", "field_order",
)  # fmt: skip
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "width": st.integers(-(2**63), 2**63 - 1),
    "sample_aspect_ratio": values.words | st.from_regex(r"[0-9²٣]{1,5}:[0-9]{1,5}", fullmatch=True),
    "avg_frame_rate": values.words | st.sampled_from(["²/1", "1/0", "٣/1", f"{'9' * 5000}/1"]),
    "tags": st.fixed_dictionaries({}, optional={"DURATION": values.words, "rotate": values.words}),
}
KIND = {"index": st.integers(0, 3), "codec_type": st.sampled_from(["video", "audio", "data"])}
STREAM = st.fixed_dictionaries({}, optional=dict.fromkeys(MEMBERS, values.json | values.words)) | st.fixed_dictionaries(
    KIND, optional=LIKELY
)


FIELDS = st.sampled_from([b"0", b"1", b"-1", b"0.04", b"1e14", b"-1e300", b"nan", b"N/A", b"", b"K__", b"_D", b"\xff"])
PACKETS = st.lists(st.lists(FIELDS, max_size=7).map(b",".join), max_size=12)
FRAMES = st.lists(
    st.dictionaries(
        st.sampled_from(
            ["width", "height", "pts_time", "key_frame", "interlaced_frame", "color_space", "pix_fmt", "x"]
        ),
        st.sampled_from(["0", "1", "320", "-5", "1e15", "nan", "bt709", "reserved", ""]) | values.words,
    ).map(lambda each: "|".join(f"{name}={value}" for name, value in each.items()).encode(errors="replace")),
    max_size=6,
)


@searched(120)
@given(packets=PACKETS, frames=FRAMES, container=st.sampled_from(["mpegts", "matroska,webm", "h264"]))
def test_whatever_packets_and_frames_are_shown_the_plan_is_finite(
    packets: list[bytes], frames: list[bytes], container: str
) -> None:
    media = Media(format=container, size=1, videos=(VideoStream(0, "h264", 320, 180),), sounds=(AudioStream(1, "aac"),))
    reader, look = PacketReader(media), Look()
    for line in packets:
        reader.add(line)
    for line in frames:
        look.add(line)
    media = choose_streams(media, CODECS, reader.spans)
    if media.video is None:
        return
    media = msgspec.structs.replace(media, video=seen(media.video, look))
    plan = plan_transcode(media, reader.timeline(media), TranscodeRequest())
    expected = plan.expected
    for number in (expected.duration, expected.begin, expected.video, expected.audio or 0.0, plan.hold or 0.0):
        assert math.isfinite(number), plan
        assert number >= 0, plan
    assert "nan" not in " ".join(transcode_arguments(plan, 1))


@searched(120)
@given(answer=st.binary(max_size=50) | st.fixed_dictionaries({"streams": st.lists(STREAM, max_size=3)}))
@example(answer=b"[" * 100_000)
@example(answer=b'{"x":' * 100_000)
@example(answer=b'{"streams": [{"index": 1e999}]}')
@example(answer={"streams": [{"index": 0, "codec_type": "video", "avg_frame_rate": "²/1"}]})
@example(answer={"streams": [{"index": 0, "codec_type": "video", "avg_frame_rate": f"{'9' * 5000}/1"}]})
@example(answer={"streams": [{"index": 0, "codec_type": "video", "tags": {"DURATION": "1e14:1e14:nan"}}]})
def test_whatever_the_prober_shows_it_is_a_description_or_unreadable(answer: Any) -> None:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    try:
        found = parse_probe(text)
    except MediaUnreadable:
        return
    assert isinstance(found, Media)
    choose_streams(found, CODECS)
    msgspec.json.encode([found.size, found.duration, found.start, [each.displayed for each in found.videos]])
