from __future__ import annotations

from pathlib import Path

from peerd.config import check, load
from peerd.config.schedules import schedules_for_node
from peerd.domain.schedule import Schedule
from tests.unit.config.conftest import EMPTY, Write, problems


def test_a_web_section_is_read_with_absolute_paths_for_its_sockets(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = ["unix:run/site.sock", ":8080"]
        unix_mode = "0660"
        hang_after = "none"
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
        [schedules.live]
        run = "a:b"
        interval = 1
        environments = ["production", "staging"]
        [schedules.always]
        run = "a:b"
        interval = 1
    """)
    names = [
        [one.name for one in schedules_for_node(load(path, {"PEERD_NODE_ENVIRONMENT": given}))]
        for given in ("staging", "x")
    ]
    assert names == [["live", "always"], ["always"]]
    [*_, warning] = [one for one in check(path, {}).warnings if "environment" in one.message]
    assert "it is for 'production', 'staging', and this node has no environment" in warning.message
