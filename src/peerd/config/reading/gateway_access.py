"""Checks of gateways: who may connect to one, the files of TLS, and limits that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from peerd.config.problems import Problem
from peerd.config.reading.source import ConfigSource
from peerd.config.reading.tls_files import find_tls_problems
from peerd.config.settings import GatewaySettings, Settings
from peerd.domain.bind_address import is_local, parse_bind_address
from peerd.domain.size import format_size

LONGEST_COMMAND = 8192
"""Bytes of a command without its body, generously."""


def find_gateway_problems(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """A gateway without access control, with unusable files of TLS, or with buffers that are too small for a job."""
    for name, gateway in settings.gateway.items():
        yield from _access_problems(name, gateway, source)
        yield from find_tls_problems(("gateway", name), gateway, source)
        yield from _buffer_problems(name, gateway, source)


def find_gateway_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """What other machines can read or do, although the access is as it was asked for."""
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
