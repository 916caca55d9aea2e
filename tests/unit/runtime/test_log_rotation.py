from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITE = """
import asyncio, sys, threading, time
from pathlib import Path
from peerd.runtime.observability import logfile
from peerd.runtime.observability.log_rotation import LogRotation

log = Path(sys.argv[1])
logfile.redirect_output(log)

def burst():
    for _ in range(100):
        sys.stderr.write("x" * 200_000 + "\\n")
        sys.stderr.flush()
        time.sleep(0.02)

async def main():
    rotation = LogRotation(log, 1_000_000, 100, lambda: logfile.redirect_output(log))
    rotating = asyncio.create_task(rotation.run())
    await asyncio.sleep(0.1)  # the burst does not begin with a check of the file
    await asyncio.to_thread(burst)
    rotating.cancel()

asyncio.run(main())
"""


def test_a_burst_does_not_make_the_log_many_times_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    subprocess.run([sys.executable, "-c", WRITE, str(log)], check=True, timeout=60)
    sizes = [file.stat().st_size for file in tmp_path.glob("peerd.log*")]
    assert sum(sizes) == 100 * 200_001, "nothing is lost"
    assert max(sizes) < 4_000_000
