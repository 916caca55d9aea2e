from __future__ import annotations

import os
import subprocess
import sys
import time

SPEAK = (
    "from peerd.supervision.console import Console; console = Console('n')\nfor i in range(5000): console.log('x' * {})"
)


def test_an_unread_pipe_does_not_block_the_master_and_a_reader_that_has_gone_does_not_end_it() -> None:
    reader, writer = os.pipe()
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", SPEAK.format(500)], stderr=writer, check=True, timeout=60)
    assert time.monotonic() - began < 30
    assert os.read(reader, 4096).startswith(b"peerd n: xxx")
    os.close(reader)
    subprocess.run([sys.executable, "-c", SPEAK.format(10_000)], stderr=writer, check=True, timeout=60)
    os.close(writer)
