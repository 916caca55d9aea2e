"""A whole node, by ``peerd up``, for the time of a block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.databases import SECRET, BenchDatabase

ROOT: Final = Path(__file__).parents[1]


@contextmanager
def running_node(target: BenchDatabase, name: str, sections: str = "") -> Iterator[Path]:
    """A node of this name with these sections of a peerd.toml, stopped gracefully; its folder."""
    folder = target.folder / name
    folder.mkdir(exist_ok=True)
    config = folder / "peerd.toml"
    cluster = f'[database]\nurl = "{target.url}"\n[cluster]\nsecret = "{SECRET}"\n'
    config.write_text(f'[node]\nname = "{name}"\n{cluster}{sections}')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PEERD_")}
    command = [sys.executable, "-m", "peerd", "up", "--config", str(config)]
    with (folder / "log").open("w") as log:
        node = subprocess.Popen(
            command, cwd=folder, env=environment | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
        )
        try:
            yield folder
        except Exception as error:
            error.add_note(f"the node said:\n{(folder / 'log').read_text()[-3000:]}")
            raise
        finally:
            node.send_signal(signal.SIGTERM)
            try:
                node.wait(60)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
