"""The secret of a cluster: configured, or on SQLite in a file beside the database; and the secrets of access keys."""

from __future__ import annotations

import hmac
import os
import secrets
from base64 import urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

_CONTEXT: Final = b"peerd s3 access key 1\n"


def read_secret(url: URL, given: str | None, *, make: bool = False) -> str | None:
    """The secret to sign rings with; None where there is none.

    Args:
        url: the database's.
        given: [cluster] secret.
        make: create the file beside SQLite's database where there is none yet. Nodes do; a client only reads it, for
            without a node nothing receives its rings.
    """
    if given or url.get_backend_name() != "sqlite":
        return given or None
    file = secret_path(url)
    if file is None:
        return None
    return _read(file) or (_make(file) if make else None)


def secret_path(url: URL) -> Path | None:
    """The secret file of a cluster on SQLite; None for a database in memory."""
    name = url.database
    return None if not name or name == ":memory:" or name.startswith("file:") else Path(f"{name}.secret")


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None  # without the right to read the file there are no rings


def _make(file: Path) -> str | None:
    """Write the file whole, then link it to its name: two nodes that begin together agree on one secret."""
    draft = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with suppress(OSError):
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as written:
            written.write(secrets.token_hex(32) + "\n")
        try:
            with suppress(FileExistsError):
                os.link(draft, file)
        finally:
            draft.unlink()
        return _read(file)
    return None


def derive_access_secret(cluster_secret: str, key_id: str) -> str:
    """The secret of an access key: 43 characters, which only who knows the cluster's secret can compute.

    A stolen database therefore opens nothing.

    Args:
        cluster_secret: [cluster] secret; when it is changed, the secrets of all access keys change.
        key_id: of the access key.

    >>> len(derive_access_secret("the secret of a cluster", "PEERDABCDEFGHIJKLMNO"))
    43
    """
    digest = hmac.digest(cluster_secret.encode(), _CONTEXT + key_id.encode(), "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
