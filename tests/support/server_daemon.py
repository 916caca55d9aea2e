"""Keep one database server for a whole test run, and leave nothing of it behind.

`python -m tests.support.server_daemon KIND FOLDER` starts the server, writes FOLDER/KIND.json (its ports, or why it has
none) and waits for the run's end: that is when the lock on FOLDER/alive becomes free. The test run's controller holds
this lock, and the kernel frees it however the controller ends. While the daemon runs it holds a lock on
FOLDER/KIND.kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from tests.support.galera import Galera
from tests.support.server import DatabaseServer, ServerUnavailableError
from tests.support.server_kinds import SHARED_SERVERS

RUN_LOCK = "alive"


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the controller; this process ends with it
    with (folder / f"{kind}.kept").open("w") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        server = SHARED_SERVERS[kind](folder / kind, durable=os.environ.get("PEERD_TEST_DURABLE") == "1")
        try:
            run_server(server, folder)
        finally:
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)
    remove_folder_when_last(folder)


def run_server(server: DatabaseServer | Galera, folder: Path) -> None:
    answer: dict[str, object]
    try:
        server.start()
        answer = {"ports": server.ports}
    except Exception as error:  # noqa: BLE001 - the test process raises it
        answer = {"unavailable" if isinstance(error, ServerUnavailableError) else "broken": str(error)}
    unfinished = folder / f"{server.kind}.json.new"
    unfinished.write_text(json.dumps(answer))
    unfinished.rename(folder / f"{server.kind}.json")
    if "ports" in answer:  # wait for the end of the run
        with (folder / RUN_LOCK).open("r+") as alive:
            fcntl.lockf(alive, fcntl.LOCK_EX)


def remove_folder_when_last(folder: Path) -> None:
    """Remove the run's folder if its controller was killed and no other server's daemon is left."""
    with (folder / RUN_LOCK).open("r+") as alive:
        try:
            fcntl.lockf(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        if not any((folder / kind).exists() for kind in SHARED_SERVERS):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
