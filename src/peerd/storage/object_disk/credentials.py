"""What requests to an object store are signed with: from a file, or from the environment; read again and again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from configparser import ConfigParser, Error
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from peerd.storage.object_disk.errors import CredentialsMissing

if TYPE_CHECKING:
    from obstore.store import S3Credential

READ_EVERY: Final = timedelta(minutes=1)
"""After this time they are read again, so that a file can be replaced while nodes run."""
PROFILE: Final = "default"


def read_credentials(
    place: str, file: Path | None, environment: Mapping[str, str] = os.environ
) -> tuple[str, str, str | None]:
    """The id of an access key, its secret, and the token of a session, if there is one.

    Args:
        place: of the disk, for errors.
        file: with a section ``[default]``, in the format of the AWS CLI; None: the environment has them.
        environment: with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN or not.

    Raises:
        CredentialsMissing: they are not there.
    """
    if file is None:
        found: Mapping[str, str] = {name.lower(): environment.get(name.upper(), "") for name in _NAMES}
        origin = "the environment of this process"
    else:
        found, origin = _in_file(place, file), str(file)
    key, secret, token = (found.get(name, "").strip() for name in _NAMES)
    if not key or not secret:
        raise CredentialsMissing(place, f"{origin} has no {_NAMES[1] if key else _NAMES[0]}")
    return key, secret, token or None


_NAMES: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def _in_file(place: str, file: Path) -> Mapping[str, str]:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(file.read_text())
    except OSError as error:
        raise CredentialsMissing(place, f"{file}: {error.strerror}") from None
    except (Error, UnicodeDecodeError):
        raise CredentialsMissing(place, f"{file} is not of the form of the AWS CLI") from None
    if not parser.has_section(PROFILE):
        raise CredentialsMissing(place, f"{file} has no section [{PROFILE}]")
    return dict(parser[PROFILE])


class CredentialsReader:
    """Gives credentials to obstore, which asks again when they are a minute old.

    Args:
        place: of the disk.
        file: see `read_credentials`.
    """

    def __init__(self, place: str, file: Path | None) -> None:
        self._place = place
        self._file = file

    def __call__(self) -> S3Credential:
        key, secret, token = read_credentials(self._place, self._file)
        until = datetime.now(UTC) + READ_EVERY
        return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": until}
