"""The API answers to the names of this machine, and to no page of another site."""

from __future__ import annotations

import httpx
from starlette.datastructures import Headers

from peerd.web.request_checks import refuse_cross_site, refuse_host


def refuse(method: str = "GET", **headers: str) -> str | None:
    named = {"host": "127.0.0.1:8080"} | {name.replace("_", "-"): value for name, value in headers.items()}
    encoded = [(name.encode(), value.encode()) for name, value in named.items()]
    scope = {"type": "http", "method": method, "client": ("127.0.0.1", 5), "headers": encoded}
    found = Headers(scope=scope)
    return refuse_host(scope, found, ()) or refuse_cross_site(scope, found)


def test_hosts_of_this_machine_alone_are_answered() -> None:
    for host in ("localhost:8080", "[::1]:80", "127.9.9.9:1", "LOCALHOST"):
        assert refuse(host=host) is None, host
    for host in (
        "127.0.0.1:8181@evil",
        'localhost:"><script>',
        "localhost:1:2",
        "[::1]x",
        "",
        "[",
        "0",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "10.0.0.7",
        "[fe80::1]",
    ):
        assert "Host header" in str(refuse(host=host)), host


def test_a_page_of_another_site_can_change_nothing(http: httpx.Client) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for site in ("cross-site", "same-site"):
            assert "another" in str(refuse(method, sec_fetch_site=site))
        for origin in ("http://evil.example", "null", "http://127.0.0.1:8081"):
            assert "another" in str(refuse(method, origin=origin))
        assert refuse(method, sec_fetch_site="same-origin", origin="http://127.0.0.1:8080") is None
        assert refuse(method) is None, "programs send neither"
    form = {"content": b'{"queue": "q"}', "headers": {"content-type": "text/plain"}}
    assert http.post("/tasks", **form).status_code == 422, "a body is JSON by its content type"  # type: ignore[arg-type]
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    preflight = http.options("/tasks", headers=asked)
    assert not [name for name in preflight.headers if name.startswith("access-control")]
