"""Checks of the sections that serve: who may connect to a gateway, the files of TLS, and secrets that all can read."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import asdict

from peerd.config.address import has_password
from peerd.config.problems import KeyPath, Problem
from peerd.config.section import Section
from peerd.config.settings import GatewaySettings, ServingSettings, Settings, StorageSettings
from peerd.config.source import ConfigSource
from peerd.domain.bind_address import is_local, parse_bind_address
from peerd.domain.files import STORAGE_SERVER
from peerd.domain.units import format_size

TLS_KEYS: Final = ("tls_certificate", "tls_key")
SECRET_FILES: Final[Mapping[str, str]] = {
    "password_file": "password",
    "secret_file": "secret",
    "token_file": "token",
    "credentials_file": "access key",
    "tls_key": "key",
}
"""Keys that name a file with a secret, and the kind of the secret."""
SECRETS: Final[Mapping[str, str]] = {
    "secret": "secret",
    "token": "token",
    "webhook": "webhook's address, which is a secret,",
}
"""Keys that are a secret, if it was not read from a file."""
LONGEST_COMMAND = 8192
"""Bytes of a command without its body, generously."""


def find_access_problems(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Sections that anybody could use, with unusable files of TLS, or with buffers that are too small for a job."""
    for name, gateway in settings.gateway.items():
        yield from _access_problems(name, gateway, source)
        yield from find_tls_problems(("gateway", name), gateway, source)
        yield from _buffer_problems(name, gateway, source)
    yield from _proxy_problems(settings, source)
    for name, web in settings.web.items():
        if name != STORAGE_SERVER:  # which has the files of [storage]
            yield from find_tls_problems(("web", name), web, source)


def find_access_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Access that was asked for, and lets others read or do something."""
    yield from _gateway_warnings(settings, source)
    yield from _readable_secrets(settings, source)


def find_tls_problems(
    section: KeyPath, files: ServingSettings | StorageSettings, source: ConfigSource
) -> Iterator[Problem]:
    """Problems of a certificate without its key, of a key without its certificate, and of files that cannot be used."""
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


def _find_unusable_file(files: ServingSettings | StorageSettings) -> tuple[str, str]:
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


def _access_problems(name: str, gateway: GatewaySettings, source: ConfigSource) -> Iterator[Problem]:
    keys = ("token", "token_file", "tls_certificate", "allow_unauthenticated")
    is_checked = source.has_valid(*(("gateway", name, key) for key in (*keys, "bind")))
    has_access_control = gateway.token or gateway.token_file or gateway.tls_certificate
    if has_access_control or gateway.allow_unauthenticated or not is_checked:
        return
    for bind in _addresses_for_others(gateway):
        problem = f"{bind} can be reached from other machines, and every client there could take and delete jobs"
        remedy = "give a token_file, or tls_certificate and tls_key; or say allow_unauthenticated = true"
        yield source.problem(("gateway", name, "bind"), problem, remedy)
        return


def _addresses_for_others(gateway: GatewaySettings) -> list[str]:
    """The addresses that other machines can, or may be able to, connect to."""
    return [bind for bind in gateway.bind if _may_be_remote(bind)]


def _may_be_remote(bind: str) -> bool:
    try:
        return not is_local(parse_bind_address(bind))
    except ValueError:  # its path, now absolute, is too long, which is reported by itself
        return False


def _buffer_problems(name: str, gateway: GatewaySettings, source: ConfigSource) -> Iterator[Problem]:
    keys = ("max_job_size", "max_buffered", "max_buffered_total")
    if not source.has_valid(*(("gateway", name, key) for key in keys)):
        return
    needed = gateway.max_job_size + LONGEST_COMMAND
    if gateway.max_buffered_bytes < needed:
        problem = f"a job of max_job_size ({format_size(gateway.max_job_size)}) does not fit into it"
        yield source.problem(("gateway", name, "max_buffered"), problem, f"give at least {needed}, or leave it out")
    elif gateway.max_buffered_total < gateway.max_buffered_bytes:
        problem = f"one connection may have {format_size(gateway.max_buffered_bytes)}"
        remedy = f"give at least {gateway.max_buffered_bytes}"
        yield source.problem(("gateway", name, "max_buffered_total"), problem, remedy)


def _proxy_problems(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """A header that names the user must come from a proxy, and not from anything that connects."""
    for name, web in settings.web.items():
        if settings.access.proxy_user_header is not None and "*" in web.forwarded_allow_ips:
            problem = "every program that connects could name any user in [access] proxy_user_header"
            yield source.problem(("web", name, "forwarded_allow_ips"), problem, "give the addresses of the proxies")


def _gateway_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for name, gateway in settings.gateway.items():
        addresses = ", ".join(_addresses_for_others(gateway))
        if not addresses or gateway.allow_unauthenticated:
            continue
        if gateway.token is not None and gateway.tls_certificate is None:
            problem = f"the token is sent in clear to {addresses}: whoever reads the network can use it, and read jobs"
            yield source.problem(("gateway", name), problem, "give tls_certificate and tls_key too")
        elif gateway.token is None and gateway.tls_certificate is not None:
            problem = f"TLS alone refuses no client: whoever reaches {addresses} can take and delete jobs"
            yield source.problem(("gateway", name), problem, "give a token_file too")


def _readable_secrets(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Secrets in files whose mode lets all users read them; the modes of folders are not considered."""
    for key_path, kind, file in _secret_locations(settings, settings.file):
        is_overridden = file == settings.file and key_path[:2] in source.overridden
        with suppress(OSError):
            if file is not None and not is_overridden and file.stat().st_mode & stat.S_IROTH:
                problem = f"every user of this machine can read the {kind} in {file}"
                yield source.problem(key_path, problem, f"chmod o= {file}")


def _secret_locations(
    section: Section, file: Path | None, at: KeyPath = ()
) -> Iterator[tuple[KeyPath, str, Path | None]]:
    """The key of each secret, its kind, and the file that holds it, if there is one; ``file`` is peerd.toml."""
    for key, value in asdict(section).items():
        here = (*at, key)
        is_of_file = getattr(section, "password_file" if key == "url" else f"{key}_file", None) is not None
        if key in SECRET_FILES:
            yield here, SECRET_FILES[key], value
        elif key in SECRETS and value is not None and not is_of_file:
            yield here, SECRETS[key], file
        elif here == ("database", "url") and has_password(value) and not is_of_file:
            yield here, "password", file
        for name, inner in value.items() if isinstance(value, Mapping) else [(None, value)]:
            if isinstance(inner, Section) and (key, name) != ("web", STORAGE_SERVER):  # which has the key of [storage]
                yield from _secret_locations(inner, file, here if name is None else (*here, name))
