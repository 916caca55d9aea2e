"""The files of TLS of sections that serve: a certificate and its key, which belong together."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from peerd.config.problems import Problem
from peerd.config.reading.source import ConfigSource, KeyPath

TLS_KEYS: Final = ("tls_certificate", "tls_key")


class TlsFiles(Protocol):
    """A section with the files."""

    @property
    def tls_certificate(self) -> Path | None:
        """The certificate and those that signed it."""

    @property
    def tls_key(self) -> Path | None:
        """The key of the certificate."""


def find_tls_problems(section: KeyPath, files: TlsFiles, source: ConfigSource) -> Iterator[Problem]:
    """One file without the other, and files that cannot be used."""
    if not source.has_valid(*((*section, key) for key in TLS_KEYS)):
        return
    given = [key for key in TLS_KEYS if getattr(files, key) is not None]
    if len(given) == 1:
        other = next(key for key in TLS_KEYS if key not in given)
        yield source.problem((*section, given[0]), f"{other} is missing", "give both")
    if len(given) == len(TLS_KEYS):
        key, problem = _find_unusable_file(files)
        if problem:
            remedy = (
                "give a PEM file with the certificate and those that signed it, and one with its key, for this user"
            )
            yield source.problem((*section, key), problem, remedy)


def _find_unusable_file(files: TlsFiles) -> tuple[str, str]:
    """The key of the setting whose file cannot be used, and why; empty texts if TLS can be set up."""
    for key in TLS_KEYS:
        file = getattr(files, key)
        try:
            with file.open("rb") as opened:
                opened.read(1)
        except OSError as error:
            return key, f"{file}: {(error.strerror or str(error)).lower()}"
    assert files.tls_certificate is not None
    assert files.tls_key is not None
    try:
        # Without a password, OpenSSL would ask for one at the terminal.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.tls_certificate, files.tls_key, password="")
    except (ssl.SSLError, ValueError) as error:
        return "tls_key", f"is no key of tls_certificate, or is protected by a password ({_reason_of(error)})"
    return "", ""


def _reason_of(error: Exception) -> str:
    reason = getattr(error, "reason", None) or str(error)
    return str(reason).lower().replace("_", " ")
