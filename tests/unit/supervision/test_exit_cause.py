from __future__ import annotations

from pathlib import Path

from peerd.supervision.exits.exit_cause import ExitFacts, determine_cause, stop_reason
from peerd.supervision.exits.oom import OomKillCounter, read_oom_kills
from tests.support.rows import rows

TOO_LARGE = stop_reason("memory-limit", "it uses 3 GiB")
EXITS = [
    ("exit", "exit status 0", ExitFacts(0, ready=True)), ("exit", "exit status 0", ExitFacts(0, asked_to_stop=True)),
    ("exit", "exit status 1: ValueError: no", ExitFacts(1, ready=True, error="ValueError: no")),
    ("signal", "killed by SIGSEGV", ExitFacts(-11, ready=True, out_of_memory=True)),
    ("signal", "killed by signal 40", ExitFacts(-40, ready=True)),
    ("boot-failed", "exit status 3 before it was ready: no database", ExitFacts(3, error="no database")),
    ("signal", "killed by SIGKILL before it was ready", ExitFacts(-9)),
    ("boot-failed", "killed because it did not become ready in time", ExitFacts(-9, out_of_time=True)),
    ("signal", "killed by SIGKILL before it was ready", ExitFacts(-9, out_of_time=True, is_leaving=True)),
    ("signal", "killed by SIGKILL, since it did not end by itself: oh",
     ExitFacts(-9, ready=True, out_of_time=True, is_leaving=True, error="oh")),
    ("tainted", "tainted (exit status 70): oh", ExitFacts(70, ready=True, retired="tainted", error="oh")),
    ("recycled", "recycled (exit status 75): had 9", ExitFacts(75, ready=True, retired="recycle", error="had 9")),
    ("killed-after-grace", "did not end within its grace (killed by SIGKILL)",
     ExitFacts(-9, ready=True, out_of_time=True)),
    ("killed-after-grace", "did not end within its grace (exit status 124)", ExitFacts(124, ready=True)),
    ("memory-limit", "it uses 3 GiB (exit status 0)", ExitFacts(0, ready=True, asked_to_stop=True, reason=TOO_LARGE)),
    ("out-of-memory", "killed by SIGKILL: the kernel was out of memory", ExitFacts(-9, ready=True, out_of_memory=True)),
    ("silent", "silent for 60 s (frozen, or its interpreter was blocked), and killed",
     ExitFacts(-6, ready=True, silent_for=60.2)),
]  # fmt: skip


@rows("kind, text, exit_facts", EXITS)
def test_an_exit_has_one_cause_and_its_text(kind: str, text: str, exit_facts: ExitFacts) -> None:
    cause = determine_cause(exit_facts)
    assert (cause.kind, cause.text) == (kind, text)
    assert (cause.status is None) == (exit_facts.returncode < 0) == (cause.signal is not None)


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
