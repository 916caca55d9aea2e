"""Short addresses of unix sockets.

The address of a unix socket has at most about 100 bytes, and the path of a run directory may be longer. The folder is
therefore reached through an open file descriptor, whose path under /proc is short. (Sockets in the temp folder would
depend on TMPDIR and PrivateTmp being the same for the service and for its clients.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_socket_directory(folder: str | Path) -> Iterator[Path]:
    """A short path of a folder, valid in this process and context. Raises OSError if the folder cannot be opened.

    >>> with short_socket_directory("/") as short:
    ...     (short / "etc").is_dir()
    True
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
