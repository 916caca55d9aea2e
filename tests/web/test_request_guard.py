"""Without a login, the API answers this machine alone, and no page of another site."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.datastructures import Headers

from peerd.web.request_checks import refuse_cross_site, refuse_foreign, refuse_host

LOCAL = ("127.0.0.1", 5)


def scope(method: str = "GET", *, peer: Any = LOCAL, **headers: str) -> dict[str, Any]:
    named = {"host": "127.0.0.1:8080"} | {name.replace("_", "-"): value for name, value in headers.items()}
    encoded = [(name.encode(), value.encode()) for name, value in named.items()]
    return {"type": "http", "method": method, "client": peer, "headers": encoded}


def refuse(scope: dict[str, Any]) -> str | None:
    headers = Headers(scope=scope)
    return refuse_foreign(scope, headers) or refuse_host(scope, headers, ()) or refuse_cross_site(scope, headers)


def test_peers_and_hosts_of_this_machine_alone_are_answered() -> None:
    for peer in (("127.0.0.1", 5), ("::1", 5), ("::ffff:127.0.0.1", 5), None):
        assert refuse(scope(peer=peer)) is None, peer
    for name in ("10.0.0.7", "::ffff:10.0.0.7", "fe80::1", "testclient"):
        assert "this machine only" in str(refuse(scope(peer=(name, 5)))), name
    for host in ("localhost", "localhost:8080", "[::1]:80", "127.0.0.1", "127.9.9.9:1", "LOCALHOST"):
        assert refuse(scope(host=host)) is None, host
    elsewhere = "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "10.0.0.7", "[fe80::1]"
    for host in ("", "[", "0", *elsewhere):
        assert "Host header" in str(refuse(scope(host=host))), host
    for header in ("x_forwarded_for", "forwarded", "x_real_ip", "via", "x_forwarded_host"):
        assert "proxy" in str(refuse(scope(**{header: "127.0.0.1"}))), f"{header} claims to be of this machine"


def test_a_page_of_another_site_can_read_nothing_and_change_nothing() -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for headers in (
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:8081"},
        ):
            assert "another" in str(refuse(scope(method, **headers)))
        assert refuse(scope(method, sec_fetch_site="same-origin", origin="http://127.0.0.1:8080")) is None
        assert refuse(scope(method)) is None, "programs send neither"


def test_a_form_of_another_site_is_refused_over_the_wire(http: httpx.Client) -> None:
    form = http.post(
        "/tasks",
        content=b'{"queue": "q"}',
        headers={"content-type": "text/plain", "origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    )
    assert form.status_code == 403
    plain = http.post("/tasks", content=b'{"queue": "q"}', headers={"content-type": "text/plain"})
    assert plain.status_code == 422, "a body is JSON by its content type"
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    preflight = http.options("/tasks", headers=asked)
    assert not [name for name in preflight.headers if name.startswith("access-control")]
