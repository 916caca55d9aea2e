"""Short addresses of unix sockets; and sockets that are closed if their set-up fails.

The address of a unix socket has at most about 100 bytes, and the path of a run directory may be longer. The folder is
therefore reached through an open file descriptor, whose path under /proc is short. (Sockets in the temp folder would
depend on TMPDIR and PrivateTmp being the same for the service and for its clients.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


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


class _Closable(Protocol):
    def close(self) -> None: ...


@contextmanager
def closed_on_error(opened: _Closable) -> Iterator[None]:
    """Close what was opened, a socket most often, if the block raises."""
    try:
        yield
    except BaseException:
        opened.close()
        raise
