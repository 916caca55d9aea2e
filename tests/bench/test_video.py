from __future__ import annotations

from pathlib import Path

from bench.video import breakdown, comparison, kind_of, plain_command

GUARDS = ("-progress", "pipe:1", "-protocol_whitelist", "file", "-max_pixels", "9")
ENCODER = [
    *("/usr/bin/ffmpeg", "-y", *GUARDS, "-threads", "2"),
    *("-i", "file:/proc/self/fd/7", "-c:v", "libx264", "-f", "mp4", "file:/proc/self/fd/8", 4.0),
]


def test_the_plain_command_encodes_alike_without_guards_and_reports() -> None:
    plain = plain_command(ENCODER, "/m/a.mov", Path("/m"))
    assert " ".join(plain) == "/usr/bin/ffmpeg -y -threads 2 -i /m/a.mov -c:v libx264 -f mp4 /m/ffmpeg.mp4"


def test_where_the_time_goes_adds_up_to_what_the_worker_took() -> None:
    costs = {"peerd": [(6.0, 7.0, b'{"Python": 0.5}')], "ffmpeg": [(4.0, 5.0, b"")]}
    assert comparison(costs)[1][1:] == ("6.00 (6.00–6.00)", "4.00 (4.00–4.00)", "1.500", "1.500")
    probe, packets = (["/usr/bin/ffprobe", "-show_entries", what, "-i", "x", 0.25] for what in ("format", "packet=a"))
    assert [kind_of(words) for words in (probe, packets)] == ["probing", "reading the packets"]
    rows = breakdown([ENCODER, probe, packets, ["/usr/bin/ffmpeg", "-version", 0.25]], costs)[1:]
    assert sum(float(seconds) for _, seconds, _ in rows) == 6.0
