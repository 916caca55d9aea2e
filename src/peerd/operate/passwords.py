"""Passwords: their form, and their hashes by argon2, which only what hashes or compares one loads."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any, Final

from peerd.domain.errors import InvalidAccess, PackageMissing

MIN_LENGTH: Final = 12
"""Characters. The length is what counts: no rule about kinds of characters (NIST SP 800-63B)."""
MAX_LENGTH: Final = 1_000
"""Characters; hashing a text of any length would be work that anything can order."""


def normalized(password: str) -> str:
    """The form that is hashed: a keyboard may send the same letters as other characters."""
    return unicodedata.normalize("NFKC", password)


def checked(password: object, field: str = "password") -> str:
    """A password that may be set; raises `InvalidAccess`, which names the field."""
    if not isinstance(password, str):
        raise InvalidAccess(field, "is not text")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise InvalidAccess(field, "has characters that are no text") from None
    length = len(normalized(password)) if len(password) <= MAX_LENGTH else len(password)
    if not MIN_LENGTH <= length <= MAX_LENGTH:
        raise InvalidAccess(field, f"has {length} characters; give {MIN_LENGTH} to {MAX_LENGTH}")
    return password


def hash_password(password: str) -> str:
    """The hash that is stored; it takes about 50 ms and 64 MiB."""
    return str(_hasher().hash(normalized(password)))


def matches(password_hash: str | None, password: str) -> bool:
    """Whether a password has this hash. Without a hash the same work is done, and it has not."""
    from argon2.exceptions import InvalidHashError, VerifyMismatchError  # noqa: PLC0415 - see the module

    if len(password) > MAX_LENGTH:
        password_hash, password = None, ""
    try:
        is_right = _hasher().verify(password_hash or _dummy_hash(), normalized(password))
    except (VerifyMismatchError, InvalidHashError, UnicodeEncodeError):
        return False
    return bool(is_right) and password_hash is not None


def needs_rehash(password_hash: str) -> bool:
    """Whether a hash was made with other parameters than those of today."""
    return bool(_hasher().check_needs_rehash(password_hash))


@cache
def _hasher() -> Any:
    try:
        from argon2 import PasswordHasher  # noqa: PLC0415 - see the module
    except ImportError:
        raise PackageMissing("argon2-cffi", "dashboard") from None
    return PasswordHasher()


@cache
def _dummy_hash() -> str:
    """What a password for an unknown name is compared with: the time of a login does not tell which names exist."""
    return hash_password("no password of any user")
