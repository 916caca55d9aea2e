"""Import what the sections of a project's configuration name, in a process of its own: user code may do anything.

python -P -m peerd.cli.project.code_imports FD        reads {"project_directory", "named"} from stdin, writes lines to
FD
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from peerd.config.schedules import applies_to_node
from peerd.config.serialization import deserialize_section, serialize_section
from peerd.config.settings import Settings, WebSettings, WorkerSettings
from peerd.domain.errors import PeerdError
from peerd.runtime.process.import_path import add_project_folder

if TYPE_CHECKING:
    from peerd.work.handlers import Queue

TIMEOUT: Final = 60.0
"""Seconds for all imports of one process."""


SectionName = tuple[str, str]
"""A section of the config, and a name in it."""


def import_project_code(
    settings: Settings,
    environment: Mapping[str, str],
    sections: Collection[str] = ("workers", "web", "agent", "schedules"),
) -> dict[SectionName, dict[str, Any]]:
    """What each enabled worker, each web app, the agent's setup and each schedule's function is.

    A worker is ``{"queues": {name: its handlers, or None where it takes any task}}``, the others ``{}``;
    ``{"error": …}`` is what is wrong with one. What ends the process that imports it leaves the rest to another one.

    Args:
        settings: what names them.
        environment: of the processes that import.
        sections: those that are looked at.
    """
    request = {"project_directory": str(settings.project_directory)}
    results: dict[SectionName, dict[str, Any]] = {}
    named = [one for one in _entry_points(settings) if one[0] in sections]
    while named:
        answered_now, ended = _run_importer(json.dumps(request | {"named": named}), environment)
        results |= answered_now
        unanswered = [one for one in named if one[:2] not in results]
        if not unanswered:
            break
        (section, name, _), *named = unanswered
        results[section, name] = {"error": ended.sentence}
        if ended.out_of_time:
            results |= {
                one[:2]: {"error": "was not looked at: what was imported before took too long"} for one in named
            }
            break
    return results


def _entry_points(settings: Settings) -> Iterator[tuple[str, str, Any]]:
    for name, worker in settings.workers.items():
        if worker.enabled and (worker.tasks or worker.worker):
            yield "workers", name, serialize_section(worker)
    for name, web in settings.web.items():
        if web.enabled:
            yield "web", name, serialize_section(web)
    if settings.agent.setup is not None:
        yield "agent", "setup", settings.agent.setup
    for name, schedule in settings.schedules.items():
        if schedule.run is not None and applies_to_node(schedule, settings):
            yield "schedules", name, schedule.run


class _ImporterExit(NamedTuple):
    """How a process that imports has ended."""

    sentence: str
    out_of_time: bool = False


def _run_importer(
    request: str, environment: Mapping[str, str]
) -> tuple[dict[SectionName, dict[str, Any]], _ImporterExit]:
    """What one process answers until it ends, and how it ends."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as lines:  # no pipe: what an import starts may keep it open
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "peerd.cli.project.code_imports", str(lines.fileno())],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=[lines.fileno()], text=True, env=environment,
        )  # fmt: skip
        try:
            process.communicate(request, timeout=TIMEOUT)
            ended = _ImporterExit(f"importing it ended the process with status {process.returncode}")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = _ImporterExit(f"importing it took more than {TIMEOUT:g} s", out_of_time=True)
        lines.seek(0)
        results = [json.loads(line) for line in lines if line.endswith("\n")]
    return {(result.pop("section"), result.pop("name")): result for result in results}, ended


def main(fd: int) -> None:
    """Import, in the process of its own."""
    from peerd.entrypoints.import_string import ImportStringError  # noqa: PLC0415 - only this process needs it

    request = json.load(sys.stdin)
    add_project_folder(request["project_directory"])
    os.chdir(request["project_directory"])
    with os.fdopen(fd, "w", encoding="utf-8") as results:
        for section, name, given in request["named"]:
            try:
                result = DESCRIBERS[section](name, given)
            except (PeerdError, ImportStringError) as error:
                result = {"error": str(error).removeprefix(f"[{section}.{name}] ")}
            results.write(json.dumps({"section": section, "name": name, **result}) + "\n")
            results.flush()
    os._exit(0)  # threads that an import has started hold nothing up


def _describe_worker(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    from peerd.entrypoints.worker import load_worker, load_worker_object  # noqa: PLC0415 - only this process needs it

    given = deserialize_section(settings, WorkerSettings)
    worker = load_worker(name, given)
    queues: dict[str, list[str] | None] = dict.fromkeys(worker.settings.queues)
    for entry in given.tasks or ():
        queue = cast("Queue", load_worker_object(name, entry))
        if queue.name in queues:
            queues[queue.name] = [*(queues[queue.name] or ()), *queue.handlers]
    return {"queues": queues}


def _describe_setup(_: str, entry: str) -> Mapping[str, Any]:
    from peerd.entrypoints.agent import find_setup  # noqa: PLC0415 - as above

    find_setup(entry)
    return {}


def _describe_schedule(_: str, entry: str) -> Mapping[str, Any]:
    from peerd.entrypoints.import_string import import_object  # noqa: PLC0415 - as above
    from peerd.schedules.run_executor import NotAFunction  # noqa: PLC0415 - as above

    if not callable(found := import_object(entry)):
        raise NotAFunction(entry, found)
    return {}


def _describe_web(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    from peerd.entrypoints.web import load_app, require_server  # noqa: PLC0415 - as above

    given = deserialize_section(settings, WebSettings)
    require_server(name, given.app)
    load_app(name, given)
    return {}


DESCRIBERS: Final[Mapping[str, Callable[[str, Any], Mapping[str, Any]]]] = {
    "agent": _describe_setup,
    "schedules": _describe_schedule,
    "workers": _describe_worker,
    "web": _describe_web,
}


if __name__ == "__main__":
    main(int(sys.argv[1]))
