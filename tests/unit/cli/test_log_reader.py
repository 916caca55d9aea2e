from __future__ import annotations

from pathlib import Path

from peerd.cli.node.log_reader import ROTATION_LINGER, LineFilter, LogFollower, end_of_lines, last_lines
from peerd.runtime.observability.logfile import rotate


def last(path: Path, count: int, *slots: str) -> list[str]:
    return last_lines(path, count, LineFilter(slots), end_of_lines(path))


def test_the_last_lines_include_rotated_files_and_are_whole(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    for part in ("one\ntwo\n", "three\n\nfour\n", "five\nhalf a li"):
        if log.exists():
            rotate(log, keep=5)
        log.write_text(part)
    everything = ["one", "two", "three", "", "four", "five"]
    assert [last(log, count) for count in (1, 4, 99, 0)] == [["five"], everything[2:], everything, []]
    log = tmp_path / "long.log"
    lines = [f"{number:06} {'x' * (number % 500)}" for number in range(5_000)] + ["y" * 200_000]
    log.write_text("\n".join(lines) + "\n")
    assert last(log, 5_001) == lines, "also those longer than a block"
    assert last(log, 2) == lines[-2:]


def test_lines_of_a_slot_or_of_all_of_a_kind(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    log.write_text(
        "2026-11-21 10:00:00.1 [info] task done slot=video-1 node=here\n"
        "2026-11-21 10:00:01.1 [error] attempt failed slot=video-12\n"
        "Traceback (most recent call last):\n"
        "ValueError: no\n"
        "2026-11-21 10:00:02.1 [info] task done slot=video-hd-1\n"
        "2026-11-21 10:00:03.1 peerd here: video-1 (process 7) died: killed by SIGKILL\n"
        '{"event": "task done", "slot": "video-1"}\n'
        "video-1: did not end in time, and is killed now; its threads are here:\n"
    )
    ends = [line.split()[-1] for line in last(log, 99, "video-1")]
    assert ends == ["node=here", "SIGKILL", '"video-1"}', "here:"]
    assert [line.split()[-1] for line in last(log, 99, "video-12")] == ["slot=video-12", "last):", "no"]
    assert len(last(log, 99, "video")) == 7
    assert len(last(log, 99, "video-12", "video-hd")) == 4


def test_a_log_is_followed_across_its_rotation(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    log.write_text("before\n")
    follower = LogFollower(log, end_of_lines(log))
    with log.open("a") as old:
        print("one\nhalf", file=old, end="", flush=True)
        assert list(follower.read(0.0)) == ["one"]
        rotate(log, keep=1)
        assert list(follower.read(1.0)) == [], "the new one is not there yet"
        log.write_text("three\n")
        print(" is whole", file=old, flush=True)
        assert list(follower.read(2.0)) == ["half is whole", "three"]
        print("late", file=old, flush=True)
        assert list(follower.read(3.0)) == ["late"], "a process had not opened the new one yet"
    assert list(follower.read(3.0 + ROTATION_LINGER)) == []
    with log.open("a") as new:
        print("four", file=new)
    assert list(follower.read(99.0)) == ["four"]
    follower.close()
