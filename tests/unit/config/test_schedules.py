from __future__ import annotations

from peerd.config import check, load
from peerd.config.schedules import schedules_for_node
from peerd.domain.schedule import Schedule
from tests.unit.config.helpers import Write


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
        [schedules.nightly]
        queue = "video"
        task = "clean"
        body = {days = 3, since = 2026-01-02T03:04:05Z}
        limit_key = "acme"
        interval = "1d"
        """
    )
    assert schedules_for_node(load(path, {})) == [
        Schedule(
            name="refresh", run="studio:refresh", args=["a", 1, {"b": "2026-01-02"}], workers=("video",), type="worker",
            cron="*/5 * * * * *", timezone="Europe/Berlin", immediate=True, overlap="queue", misfire="run_once",
            misfire_grace=600.0, jitter=2.0, timeout=30.0, enabled=False,
        ),
        Schedule(
            name="nightly", queue="video", task="clean", body='{"days":3,"since":"2026-01-02T03:04:05+00:00"}',
            limit_key="acme", interval=86_400.0,
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
