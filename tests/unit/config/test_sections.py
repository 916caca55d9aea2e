from __future__ import annotations

from pathlib import Path

from peerd.config import check, load
from peerd.config.schedules import schedules_for_node
from peerd.domain.schedule import Schedule
from tests.support.certificates import make_certificate
from tests.support.rows import rows
from tests.unit.config.conftest import EMPTY, Write, checked, problems


def test_a_web_section_is_read_with_absolute_paths_for_its_sockets(write: Write) -> None:
    path = write(
        """
        [web]
        site = { app = "a:b", bind = ["unix:run/site.sock", ":8080"], unix_mode = "0660", hang_after = "none" }
        """
    )
    web = load(path, EMPTY).web["site"]
    assert web.bind == (f"unix:{path.parent}/run/site.sock", ":8080")
    assert (web.unix_mode, web.hang_after) == (0o660, None)


def test_folders_of_previews_are_absolute_and_a_unix_socket_with_too_long_a_path_refused(write: Write) -> None:
    path = write('[access]\npreview_folders = ["out", "/srv/posters", "~/films"]')
    home = Path("~/films").expanduser()
    assert load(path, {}).access.preview_folders == (path.parent / "out", Path("/srv/posters"), home)
    [problem] = problems(write(f'[web.site]\napp = "studio.site:app"\nbind = "unix:{"x" * 100}"\n'))
    assert "web.site.bind: the path of a unix socket has at most 107 bytes" in problem


SECRET = "0123456789abcdef"


def test_the_secret_comes_from_its_file_from_the_environment_or_from_peerd_toml(write: Write, project: Path) -> None:
    (project / "cluster.secret").write_text(f"{SECRET}\n")
    assert load(write('[cluster]\nsecret_file = "cluster.secret"\n'), EMPTY).cluster.secret == SECRET
    path = write(f'[cluster]\nsecret = "{SECRET}"\nport = 7070\n')
    settings = load(path, EMPTY)
    assert (settings.cluster.secret, settings.cluster.port) == (SECRET, 7070)
    assert SECRET not in repr(settings)
    settings = load(path, {"PEERD_CLUSTER_SECRET": "another secret, of all", "PEERD_CLUSTER_PORT": "7071"})
    assert (settings.cluster.secret, settings.cluster.port) == ("another secret, of all", 7071)


def test_a_file_that_holds_none_and_a_second_secret_are_refused_with_the_remedy(write: Write, project: Path) -> None:
    for written, wrong, remedy in (
        (None, "no such file", "/dev/urandom"),
        ("", "is empty", "/dev/urandom"),
        ("short", "a secret has 16 to 1000 characters, this one 5", "/dev/urandom"),
        (SECRET, "there is a secret already", "keep one of them"),
    ):
        if written is not None:
            (project / "cluster.secret").write_text(written)
        own = f'secret = "{SECRET}"\n' if written == SECRET else ""
        [found] = problems(write(f'[cluster]\n{own}secret_file = "cluster.secret"\n'))
        assert (wrong in found, remedy in found) == (True, True), found


def test_every_key_reaches_the_schedule(write: Write) -> None:
    path = write(
        """
        [workers.video]
        tasks = "studio:video"
        [schedules.refresh]
        run = "studio:refresh"
        args = ["a", 1, {b = 2026-01-02}]
        workers = "video"
        type = "worker"
        cron = "*/5 * * * * *"
        timezone = "Europe/Berlin"
        immediate = true
        overlap = "queue"
        misfire = "run_once"
        misfire_grace = "10m"
        jitter = "2s"
        timeout = 30
        enabled = false
        [schedules]
        nightly = { queue = "video", task = "clean", body = {days = 3}, limit_key = "acme", interval = "1d" }
        """
    )
    assert schedules_for_node(load(path, {})) == [
        Schedule(
            name="refresh", run="studio:refresh", args=["a", 1, {"b": "2026-01-02"}], workers=("video",), type="worker",
            cron="*/5 * * * * *", timezone="Europe/Berlin", immediate=True, overlap="queue", misfire="run_once",
            misfire_grace=600.0, jitter=2.0, timeout=30.0, enabled=False,
        ),
        Schedule(
            name="nightly", queue="video", task="clean", body='{"days":3}', limit_key="acme",
            interval=86_400.0,
        ),
    ]  # fmt: skip


def test_a_schedule_of_environments_is_for_nodes_of_those(write: Write) -> None:
    path = write("""
        [schedules]
        live = { run = "a:b", interval = 1, environments = ["production", "staging"] }
        always = { run = "a:b", interval = 1 }
    """)
    names = [
        [one.name for one in schedules_for_node(load(path, {"PEERD_NODE_ENVIRONMENT": given}))]
        for given in ("staging", "x")
    ]
    assert names == [["live", "always"], ["always"]]
    [*_, warning] = [one for one in check(path, {}).warnings if "environment" in one.message]
    assert "it is for 'production', 'staging', and this node has no environment" in warning.message


TOKEN = "a-token-of-some-length"
UNASKED = "can be reached from other machines, and every client there could take and delete jobs"
REMEDY = "give a token_file, or tls_certificate and tls_key; or say allow_unauthenticated = true"


def test_a_gateway_needs_no_key_and_listens_where_beanstalkd_does(write: Write) -> None:
    path = write("[gateway.queue]\n[gateway.large]\nbind = '127.0.0.1:1'\nmax_job_size = '10MB'\n")
    queue, large = load(path, EMPTY).gateway.values()
    assert (queue.bind, queue.protocols) == (("127.0.0.1:11300",), ("beanstalk", "json"))
    buffered = (queue.max_buffered_bytes, large.max_buffered_bytes)
    assert buffered == (1_048_576, 20_000_000), "a connection may buffer two of the largest jobs"


def test_an_address_for_other_machines_is_refused_without_access_control_and_others_are_not(write: Write) -> None:
    for bind in (":11300", "10.0.0.7:11300", "queue.example:11300", "systemd:queue"):
        found = checked(write(f"[gateway.queue]\nbind = ['127.0.0.1:1', '{bind}']\n"))
        [problem] = found.problems
        assert str(problem) == f"peerd.toml:2: gateway.queue.bind: {bind} {UNASKED}; {REMEDY}"
        assert found.warnings == [], "without a token none is sent in clear"
    for bind in (
        "127.1.2.3:0",
        "localhost:11300",
        "[::1]:11300",
        "unix:queue.sock",
        ":1'\nallow_unauthenticated = true #",
    ):
        found = checked(write(f"[gateway.queue]\nbind = '{bind}'\n"))
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
