"""A node without a disk of its own, in a process whose memory is measured: it serves, and makes copies when asked.

It prints its address; each line of its input is the number of a disk and the id of a file to copy there.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import msgspec

from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.store.connection.database import Database
from tests.storage.nodes import ServedNode
from tests.store.file_steps import Catalogue


def main(url: str, folder: str, options: str) -> None:
    store = msgspec.json.decode(options, type=ObjectDiskOptions)
    node = ServedNode("b", Path(folder), Catalogue(Database(url)), disks=0, object_stores=(store,))
    with node.served():
        node.node.disks.refresh()
        sys.stdout.write(f"{node.url}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            disk, file = line.split()
            copied = node.duties.copy(int(disk), [file], threading.Event(), lambda *_: None)
            sys.stdout.write(f"{msgspec.json.encode(copied).decode()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
