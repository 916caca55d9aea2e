from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

from peerd.runtime.os_processes import NOT_FOUND, NOT_STARTED, ResourceLimits, launch_command
from peerd.testing import eventually
from tests.support.rows import rows

SHOW = """
import json, os, resource as r, signal
print(json.dumps({
    "cpu": r.getrlimit(r.RLIMIT_CPU), "memory": r.getrlimit(r.RLIMIT_AS)[0], "file": r.getrlimit(r.RLIMIT_FSIZE)[0],
    "files": r.getrlimit(r.RLIMIT_NOFILE)[0], "nice": os.nice(0), "group": os.getpgrp() == os.getpid(),
}))
"""


def run(*argv: str, limits: ResourceLimits | None = None, own_group: bool = False) -> subprocess.CompletedProcess[str]:
    command = launch_command(argv, limits=limits, own_group=own_group)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_limits_reach_the_program_and_without_them_those_of_the_parent_apply() -> None:
    limits = ResourceLimits(cpu_seconds=7.5, memory_bytes=1 << 30, file_bytes=1 << 20, open_files=64, nice=3)
    shown = json.loads(run(sys.executable, "-c", SHOW, limits=limits, own_group=True).stdout)
    given = {"cpu": [8, 9], "memory": 1 << 30, "file": 1 << 20, "files": 64}
    assert shown == given | {"nice": os.nice(0) + 3, "group": True}
    shown = json.loads(run(sys.executable, "-c", SHOW).stdout)
    assert shown["files"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert (shown["nice"], shown["group"]) == (os.nice(0), False)


def test_a_program_that_exceeds_a_limit_is_ended_by_the_signal_that_reports_it_or_fails(tmp_path: Path) -> None:
    big = tmp_path / "big"
    done = run("dd", "if=/dev/zero", f"of={big}", "bs=4k", "count=100", limits=ResourceLimits(file_bytes=65536))
    assert (done.returncode, big.stat().st_size) == (-signal.SIGXFSZ, 65536)
    done = run("sh", "-c", "while :; do :; done", limits=ResourceLimits(cpu_seconds=0.5))
    assert done.returncode == -signal.SIGXCPU
    done = run(sys.executable, "-c", "bytes(1 << 30)", limits=ResourceLimits(memory_bytes=1 << 29))
    assert done.returncode == 1
    assert "MemoryError" in done.stderr


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    done = run("no-such-program", "-x")
    assert (done.returncode, done.stderr) == (NOT_FOUND, "there is no program 'no-such-program'\n")
    (tmp_path / "text").write_text("no program")
    done = run(str(tmp_path / "text"))
    assert done.returncode == NOT_STARTED
    assert "cannot start" in done.stderr
    command = launch_command(["echo", "started"])
    how = json.loads(command[6]) | {"parent": os.getppid()}
    late = subprocess.run([*command[:6], json.dumps(how), *command[7:]], capture_output=True, check=False)
    assert (late.returncode, late.stdout) == (NOT_STARTED, b""), "its parent has gone"


@rows("own_group", [False, True])
def test_a_program_ends_with_the_process_that_started_it_even_if_it_ignores_signals(*, own_group: bool) -> None:
    code = f"""
import subprocess, sys, time
from peerd.runtime.os_processes import launch_command
argv = launch_command(["sh", "-c", "trap '' TERM INT HUP; echo $$; while :; do sleep 0.1; done"], own_group={own_group})
subprocess.Popen(argv)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        program = int(parent.stdout.readline())
        parent.kill()
    eventually(lambda: not Path(f"/proc/{program}").exists())
