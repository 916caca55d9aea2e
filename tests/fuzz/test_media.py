"""Media from strangers: probing ends in time, in a bounded answer or in a clear refusal, and reads one file only."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.workers.video.errors import MediaRefused, MediaUnreadable, PathRefused, VideoError
from peerd.workers.video.jobs import probe
from peerd.workers.video.media import Media
from peerd.workers.video.programs.ffprobe_output import parse_probe
from tests.fuzz import values
from tests.fuzz.conftest import searched
from tests.video.media_helpers import RecordingContext, make_clip, programs_of_this_process, remuxed, run_ffmpeg

WITHIN = 20.0
LARGEST = 10_000


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("clips")
    first = make_clip(folder / "a.mp4", size="64x36", seconds=0.4)
    return [first.read_bytes()] + [remuxed(first, folder / f"a.{kind}").read_bytes() for kind in ("mkv", "ts", "avi")]


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


def probed(directory: Path, name: str) -> dict[str, Any] | None:
    began = time.monotonic()
    said, answer = "", None
    try:
        answer = asyncio.run(probe(RecordingContext(directory, probe_timeout=10), name))
    except MediaRefused as error:
        said = str(error)
    assert len(said) < 2000
    assert str(directory) not in said, "errors name the file as the caller does"
    assert "/proc/" not in said
    assert time.monotonic() - began < WITHIN
    assert programs_of_this_process() == []
    assert len(json.dumps(answer)) < LARGEST
    return answer


@st.composite
def damage(draw: st.DrawFn) -> list[tuple[str, int, int, bytes]]:
    kind = st.sampled_from(["cut", "flip", "splice", "repeat", "insert", "blow up"])
    place = st.integers(0, 2**16)
    return draw(st.lists(st.tuples(kind, place, place, st.binary(min_size=1, max_size=16)), min_size=1, max_size=4))


def damaged(content: bytes, other: bytes, harm: list[tuple[str, int, int, bytes]]) -> bytes:
    for kind, at, to, data in harm:
        start, end = sorted((at * len(content) >> 16, to * len(content) >> 16))
        match kind:
            case "cut":
                content = content[:start]
            case "flip":
                content = content[:start] + data + content[start + len(data) :]
            case "splice":
                content = content[:start] + other[start:end] + content[end:]
            case "repeat":
                content = content[:end] + content[start:][:50_000]
            case "insert":
                content = content[:start] + data * 1000 + content[start:]
            case _:  # sizes, counts and dimensions are near the boxes' names
                name = (b"stsz", b"stco", b"tkhd", b"avc1", b"moov", b"mdat", b"stts")[at % 7]
                content = content.replace(name, name + b"\x7f\xff\xff\xff", 1)
    return content


@pytest.mark.slow
@searched(14)
@given(which=st.integers(0, 3), other=st.integers(0, 3), harm=damage())
@example(which=0, other=0, harm=[("blow up", 2, 0, b"x")])
@example(which=0, other=1, harm=[("splice", 20_000, 50_000, b"x"), ("cut", 60_000, 0, b"x")])
def test_a_damaged_file_is_described_or_refused_in_time(
    clips: list[bytes], media: Path, which: int, other: int, harm: list[tuple[str, int, int, bytes]]
) -> None:
    (media / "damaged.mp4").write_bytes(damaged(clips[which], clips[other], harm))
    probed(media, "damaged.mp4")


@pytest.mark.slow
def test_very_many_streams_and_claims_of_a_header_are_no_allocation(clips: list[bytes], media: Path) -> None:
    single = make_clip(media / "single.mkv", size="64x36", seconds=0.2, sound=False)
    run_ffmpeg("-i", single, *["-map", "0:v"] * 200, "-c", "copy", media / "many.mkv")
    probed(media, "many.mkv")
    content = clips[0]
    at = content.index(b"avc1", content.index(b"stsd")) + 28
    for size in (b"\xff\xff\xff\xff", b"\x00\x00\xff\xff", b"\x00\x00\x00\x00"):
        (media / "huge.mp4").write_bytes(content[:at] + size + content[at + 4 :])
        probed(media, "huge.mp4")


@pytest.mark.slow
def test_a_name_is_only_a_name(clips: list[bytes], media: Path) -> None:
    for name in (
        "-i.mp4", "-f lavfi -i testsrc.mp4", "concat:a|b.mp4", "file:a.mp4", "pipe:0", "data:,a.mp4", "http:a.mp4",
        "%03d.mp4", "a?b#c.mp4", "[a].mp4", "a b'\".mp4", "é\U0001f600.mp4", "subfile,,start,0,end,9,,:a.mp4", "~.mp4",
        "$HOME.mp4",
    ):  # fmt: skip
        (media / name).write_bytes(clips[0])
        answer = probed(media, name)
        assert answer is not None, name
        assert answer["video"]["codec"] == "h264"


@pytest.mark.slow
@searched(40)
@given(
    name=values.words | st.sampled_from(["a\nb.mp4", "\x1b[31m.mp4", "a/" * 3000, "é" * 200 + ".mp4", "./a", "a//b"])
)
def test_a_name_that_is_no_files_is_refused(media: Path, name: str) -> None:
    with pytest.raises(VideoError) as refused:
        asyncio.run(probe(RecordingContext(media), name))
    assert len(str(refused.value)) < 2000
    with pytest.raises(PathRefused):
        asyncio.run(probe(RecordingContext(media), f"{name}\n-y.mp4"))


@pytest.mark.slow
def test_a_playlist_in_front_of_a_film_fetches_nothing(clips: list[bytes], media: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as internal:
        internal.setblocking(False)
        url = f"http://127.0.0.1:{internal.getsockname()[1]}/a.ts"
        for start in (f"#EXTM3U\n#EXTINF:1,\n{url}\n", f"ffconcat version 1.0\nfile {url}\n", f"<MPD>{url}"):
            (media / "both.mp4").write_bytes(start.encode() + clips[2])
            probed(media, "both.mp4")
            with pytest.raises(BlockingIOError):
                internal.accept()


STREAM = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("index", "codec_type", "codec_name", "width", "height", "sample_aspect_ratio", "avg_frame_rate", "nb_frames",
         "duration", "channels", "sample_rate", "tags", "disposition", "side_data_list"),
        values.json | values.words,
    ),
)  # fmt: skip
LIKELY = st.fixed_dictionaries(
    {"index": st.integers(0, 3), "codec_type": st.sampled_from(["video", "audio", "data"])},
    optional={
        "width": st.integers(-(2**63), 2**63 - 1),
        "sample_aspect_ratio": values.words | st.from_regex(r"[0-9²٣]{1,5}:[0-9]{1,5}", fullmatch=True),
        "avg_frame_rate": values.words | st.sampled_from(["²/1", "1/0", "٣/1", f"{'9' * 5000}/1"]),
        "nb_frames": values.words,
        "tags": st.fixed_dictionaries({}, optional={"DURATION": values.words, "rotate": values.words}),
    },
)


@searched(120)
@given(answer=st.binary(max_size=50) | st.fixed_dictionaries({"streams": st.lists(STREAM | LIKELY, max_size=3)}))
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
    msgspec.json.encode([found.size, found.duration, found.start, found.video and found.video.displayed])
