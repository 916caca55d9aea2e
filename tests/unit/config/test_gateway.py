from __future__ import annotations

from pathlib import Path

from peerd.config import load
from tests.support.certificates import make_certificate
from tests.support.rows import rows
from tests.unit.config.conftest import EMPTY, Write, checked, problems

TOKEN = "a-token-of-some-length"
UNASKED = "can be reached from other machines, and every client there could take and delete jobs"
REMEDY = "give a token_file, or tls_certificate and tls_key; or say allow_unauthenticated = true"


def test_a_gateway_needs_no_key_and_listens_where_beanstalkd_does(write: Write) -> None:
    path = write("[gateway.queue]\n[gateway.large]\nbind = '127.0.0.1:1'\nmax_job_size = '10MB'\n")
    queue, large = load(path, EMPTY).gateway.values()
    assert (queue.bind, queue.protocols) == (("127.0.0.1:11300",), ("beanstalk", "json"))
    buffered = (queue.max_buffered_bytes, large.max_buffered_bytes)
    assert buffered == (1_048_576, 20_000_000), "a connection may buffer two of the largest jobs"


def test_an_address_for_other_machines_is_refused_without_access_control(write: Write) -> None:
    for bind in (":11300", "10.0.0.7:11300", "queue.example:11300", "systemd:queue"):
        found = checked(write(f"[gateway.queue]\nbind = ['127.0.0.1:1', '{bind}']\n"))
        [problem] = found.problems
        assert str(problem) == f"peerd.toml:2: gateway.queue.bind: {bind} {UNASKED}; {REMEDY}"
        assert found.warnings == [], "without a token none is sent in clear"


@rows("bind", [
    "bind = '127.0.0.1:11300'", "bind = '127.1.2.3:0'", "bind = 'localhost:11300'", "bind = '[::1]:11300'",
    "bind = 'unix:queue.sock'", "bind = ':11300'\nallow_unauthenticated = true",
])  # fmt: skip
def test_an_address_of_this_machine_alone_needs_no_access_control(bind: str, write: Write) -> None:
    found = checked(write(f"[gateway.queue]\n{bind}\n"))
    assert (found.problems, found.warnings) == ([], [])


def test_a_token_in_clear_and_tls_for_anybody_are_warned_of(write: Write, project: Path) -> None:
    make_certificate(project, "queue")
    tls = 'tls_certificate = "queue.pem"\ntls_key = "queue.key"\n'
    path = write(
        f'[gateway.clear]\nbind = ":11300"\ntoken = "{TOKEN}"\n'
        f'[gateway.anybody]\nbind = ":11301"\n{tls}'
        f'[gateway.right]\nbind = ":11302"\ntoken = "{TOKEN}"\n{tls}'
    )
    path.chmod(0o600)
    found = checked(path)
    assert found.problems == []
    assert [str(warning) for warning in found.warnings] == [
        (
            "peerd.toml:1: gateway.clear: the token is sent in clear to :11300: whoever reads the network can use it, "
            "and read jobs; give tls_certificate and tls_key too"
        ),
        (
            "peerd.toml:4: gateway.anybody: TLS alone refuses no client: whoever reaches :11301 can take and delete "
            "jobs; give a token_file too"
        ),
    ]


def test_the_token_of_a_file_is_read_and_never_shown_and_is_given_once(write: Write, project: Path) -> None:
    (project / "queue.token").write_text(f"{TOKEN}\n")
    settings = load(write("[gateway.queue]\nbind = ':1'\ntoken_file = 'queue.token'\n"), EMPTY)
    assert settings.gateway["queue"].token == TOKEN
    assert settings.gateway["queue"].token_file == project / "queue.token"
    assert TOKEN not in repr(settings)
    assert "token='***'" in repr(settings.gateway["queue"])
    path = write(f"[gateway.queue]\ntoken = '{TOKEN}'\ntoken_file = 'queue.token'\n")
    assert problems(path) == ["peerd.toml:3: gateway.queue.token_file: there is a token already; keep one of them"]


@rows("content, problem", [
    (None, "no such file or directory"), ("", "queue.token is empty"),
    ("with a space between", "a token must be 16 to 200 printable ASCII characters without a space"),
    ("short", "a token must be 16 to 200 printable ASCII characters without a space"),
])  # fmt: skip
def test_a_file_without_a_token_is_refused(content: str | None, problem: str, write: Write, project: Path) -> None:
    if content is not None:
        (project / "queue.token").write_text(content)
    [found] = problems(write("[gateway.queue]\nbind = ':1'\ntoken_file = 'queue.token'\n"))
    assert found.startswith("peerd.toml:3: gateway.queue.token_file: ")
    assert problem in found
    assert "with a space between" not in found
