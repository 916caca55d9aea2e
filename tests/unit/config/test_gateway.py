"""[gateway.NAME] and [queues.NAME]: valid values, who may connect, the files of TLS, and secrets."""

from __future__ import annotations

import subprocess
from pathlib import Path

from peerd.config import check, load
from tests.support.certificates import make_certificate
from tests.support.rows import rows
from tests.unit.config.helpers import EMPTY, Write, checked, problems

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
    for bind in (":11300", "[::]:11300", "10.0.0.7:11300", "queue.example:11300", "systemd:queue"):
        found = checked(write(f"[gateway.queue]\nbind = ['127.0.0.1:1', '{bind}']\n"))
        [problem] = found.problems
        assert str(problem) == f"peerd.toml:2: gateway.queue.bind: {bind} {UNASKED}; {REMEDY}"
        assert found.warnings == [], "without a token none is sent in clear"


@rows("bind", [
    "bind = '127.0.0.1:11300'", "bind = '127.1.2.3:0'", "bind = 'localhost:11300'", "bind = '[::1]:11300'",
    "bind = 'unix:queue.sock'", "bind = ':11300'\nallow_unauthenticated = true",
])  # fmt: skip
def test_an_address_of_this_machine_alone_needs_no_access_control_and_another_one_may_say_so(
    bind: str, write: Write
) -> None:
    found = checked(write(f"[gateway.queue]\n{bind}\n"))
    assert (found.problems, found.warnings) == ([], [])


def test_a_token_in_clear_and_tls_for_anybody_are_warned_of(write: Write, project: Path) -> None:
    make_certificate(project, "queue")
    path = write(
        f"""
        [gateway.clear]
        bind = ":11300"
        token = "{TOKEN}"
        [gateway.anybody]
        bind = ":11301"
        tls_certificate = "queue.pem"
        tls_key = "queue.key"
        [gateway.right]
        bind = ":11302"
        token = "{TOKEN}"
        tls_certificate = "queue.pem"
        tls_key = "queue.key"
        """
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


def test_each_secret_of_a_gateway_that_others_can_read_is_reported(write: Write, project: Path) -> None:
    make_certificate(project, "queue")
    (project / "queue.token").write_text(TOKEN)
    path = write(
        f"""
        [gateway.a]
        token_file = "queue.token"
        tls_certificate = "queue.pem"
        tls_key = "queue.key"
        [gateway.b]
        bind = "127.0.0.1:0"
        token = "{TOKEN}"
        """
    )
    for file in (path, project / "queue.token", project / "queue.key"):
        file.chmod(0o644)
    assert {warning.key: warning.remedy for warning in checked(path).warnings} == {
        "gateway.a.token_file": f"chmod o= {project}/queue.token",
        "gateway.a.tls_key": f"chmod o= {project}/queue.key",
        "gateway.b.token": f"chmod o= {path.absolute()}",
    }


def test_certificate_and_key_belong_together(write: Write, project: Path) -> None:
    make_certificate(project, "queue")
    make_certificate(project, "other")
    subprocess.run(
        ["openssl", "ec", "-aes128", "-passout", "pass:closed", "-in", project / "queue.key",
         "-out", project / "closed.key"],
        check=True, capture_output=True,
    )  # fmt: skip

    def problem(certificate: str | None, key: str | None) -> str:
        lines = [f"tls_certificate = '{certificate}'"] if certificate else []
        lines += [f"tls_key = '{key}'"] if key else []
        found = check(write("\n".join(["[gateway.queue]", *lines])), EMPTY).problems
        return str(found[0]) if found else ""

    assert problem("queue.pem", "queue.key") == ""
    assert "gateway.queue.tls_certificate: tls_key is missing; give both" in problem("queue.pem", None)
    assert "gateway.queue.tls_key: tls_certificate is missing; give both" in problem(None, "queue.key")
    assert f"tls_certificate: {project}/none.pem: no such file" in problem("none.pem", "queue.key")
    assert "tls_key: is no key of tls_certificate" in problem("queue.pem", "other.key")
    assert "tls_key: is no key of tls_certificate, or is protected by a password" in problem("queue.pem", "closed.key")


def test_a_queue_with_any_name_has_its_options(write: Write) -> None:
    path = write("[queues.'mails/daily:@']\nhistory = '7d'\nbury_after = 3\nexpire_after = '1h'\nmax_jobs = 10\n")
    options = load(path, EMPTY).queues["mails/daily:@"]
    assert (options.history, options.bury_after, options.expire_after, options.max_jobs) == (604_800, 3, 3600, 10)
