from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.support.sigstop import is_stopped, stop_processes

COUNTS = """
import mmap, sys, threading
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 8)
def count():
    number = 0
    while True:
        number += 1
        memory[:] = number.to_bytes(8, "little")
for _ in range(3):
    threading.Thread(target=count).start()
"""

pytestmark = pytest.mark.slow


def test_after_the_wait_no_thread_runs(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(8))
    with subprocess.Popen([sys.executable, "-c", COUNTS, str(counter)]) as process:
        try:
            eventually(lambda: counter.read_bytes() != bytes(8))
            for _ in range(50):
                assert not is_stopped(process.pid)
                stop_processes([process.pid])
                before = counter.read_bytes()
                time.sleep(0.001)  # in which a thread that still ran would count on
                assert counter.read_bytes() == before
                os.kill(process.pid, signal.SIGCONT)
                eventually(lambda: not is_stopped(process.pid), every=0.001)
        finally:
            process.kill()
    assert is_stopped(process.pid), "it has ended"
