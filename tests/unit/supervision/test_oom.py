from __future__ import annotations

from pathlib import Path

from peerd.supervision.exits.oom import OomKillCounter, read_oom_kills


def test_a_kill_is_detected_when_the_counter_has_grown_since_the_last_call(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert (read_oom_kills(events), read_oom_kills(tmp_path / "nothing")) == (2, None)
    assert read_oom_kills(Path("/proc/vmstat")) is not None
    memory = OomKillCounter([tmp_path / "of another version", events])
    found = [memory.has_killed()]
    events.write_text("oom_kill 3\n")
    found += [memory.has_killed(), memory.has_killed(), OomKillCounter([tmp_path / "nothing"]).has_killed()]
    assert found == [False, True, False, False]
