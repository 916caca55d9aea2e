"""Media from strangers: a name is only a name, and whatever the prober shows is described or refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.workers.video.errors import MediaUnreadable, PathRefused, VideoError
from peerd.workers.video.jobs import probe
from peerd.workers.video.media import Media
from peerd.workers.video.programs.ffprobe_output import parse_probe
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


@pytest.mark.slow
@searched(40)
@given(
    name=values.words | st.sampled_from(["a\nb.mp4", "\x1b[31m.mp4", "a/" * 3000, "é" * 200 + ".mp4", "./a", "a//b"])
)
def test_a_name_that_is_no_files_is_refused(media: Path, name: str) -> None:
    with pytest.raises(VideoError) as refused:
        asyncio.run(probe(RecordingContext(media), name))
    assert len(str(refused.value)) < 2000
    assert str(media) not in str(refused.value), "errors name the file as the caller does"
    with pytest.raises(PathRefused):
        asyncio.run(probe(RecordingContext(media), f"{name}\n-y.mp4"))


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
