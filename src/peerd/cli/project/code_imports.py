"""Imports the user code that a configuration names in another process, since its import may do anything.

``python -P -m peerd.cli.project.code_imports FD`` reads ``{"project_directory", "named"}`` from stdin, and writes a
line of JSON for each result to the file descriptor FD.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from peerd.config.schedules import applies_to_node
from peerd.config.section import deserialize_section, serialize_section
from peerd.config.settings import Settings, WebSettings, WorkerSettings
from peerd.domain.errors import PeerdError
from peerd.runtime.process.interpreter import add_project_folder

if TYPE_CHECKING:
    from peerd.work.handlers import Queue

TIMEOUT: Final = 60.0
"""Seconds for all imports of one process."""
TIMEOUT_ERROR: Final = f"importing it took more than {TIMEOUT:g} s"
SectionName = tuple[str, str]
"""A section of the configuration, and a name in it."""


def import_project_code(
    settings: Settings,
    environment: Mapping[str, str],
    sections: Collection[str] = ("workers", "web", "agent", "errors", "schedules"),
) -> dict[SectionName, dict[str, Any]]:
    """Import each enabled worker, each web app, the agent's setup, the error hook and each schedule's function.

    If an import ends its process, the rest is imported by another one.

    Args:
        settings: the configuration.
        environment: the environment of the importing processes.
        sections: the sections that are imported.

    Returns:
        ``{"queues": {name: handlers, or None if it takes any task}}`` for a worker, ``{}`` for the others, and
        ``{"error": …}`` for what cannot be imported.
    """
    request = {"project_directory": str(settings.project_directory)}
    results: dict[SectionName, dict[str, Any]] = {}
    named = [one for one in _entry_points(settings) if one[0] in sections]
    while named:
        new_results, ended = _run_importer(json.dumps(request | {"named": named}), environment)
        results |= new_results
        unanswered = [one for one in named if one[:2] not in results]
        if not unanswered:
            break
        (section, name, _), *named = unanswered
        results[section, name] = {"error": ended or TIMEOUT_ERROR}
        if ended is None:
            skipped = {"error": "was not imported: the imports before it took too long"}
            return results | {one[:2]: skipped for one in named}
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
    if settings.errors.hook is not None:
        yield "errors", "hook", settings.errors.hook
    for name, schedule in settings.schedules.items():
        if schedule.run is not None and applies_to_node(schedule, settings):
            yield "schedules", name, schedule.run


def _run_importer(request: str, environment: Mapping[str, str]) -> tuple[dict[SectionName, dict[str, Any]], str | None]:
    """The results of one process, and how it ended; None if it took too long."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as lines:  # a process that an import starts could hold a pipe
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "peerd.cli.project.code_imports", str(lines.fileno())],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=[lines.fileno()], text=True, env=environment,
        )  # fmt: skip
        try:
            process.communicate(request, timeout=TIMEOUT)
            ended: str | None = f"importing it ended the process with status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = None
        lines.seek(0)
        results = [json.loads(line) for line in lines if line.endswith("\n")]
    return {(result.pop("section"), result.pop("name")): result for result in results}, ended


def main(fd: int) -> None:
    """Import, in the other process."""
    from peerd.entrypoints.process_parts import ImportStringError  # noqa: PLC0415 - only this process needs it

    request = json.load(sys.stdin)
    add_project_folder(request["project_directory"])
    os.chdir(request["project_directory"])
    with os.fdopen(fd, "w", encoding="utf-8") as results:
        for section, name, entry in request["named"]:
            try:
                result = IMPORTERS[section](name, entry) or {}
            except (PeerdError, ImportStringError) as error:
                result = {"error": str(error).removeprefix(f"[{section}.{name}] ").removeprefix("[errors] ")}
            results.write(json.dumps({"section": section, "name": name, **result}) + "\n")
            results.flush()
    os._exit(0)  # without waiting for threads that an import has started


def _describe_worker(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    from peerd.entrypoints.worker import load_worker, load_worker_object  # noqa: PLC0415 - only this process needs it

    section = deserialize_section(settings, WorkerSettings)
    worker = load_worker(name, section)
    queues: dict[str, list[str] | None] = dict.fromkeys(worker.settings.queues)
    for entry in section.tasks or ():
        queue = cast("Queue", load_worker_object(name, entry))
        if queue.name in queues:
            queues[queue.name] = [*(queues[queue.name] or ()), *queue.handlers]
    return {"queues": queues}


def _check_setup(_: str, entry: str) -> None:
    from peerd.entrypoints.agent import find_setup  # noqa: PLC0415 - as above

    find_setup(entry)


def _check_error_hook(_: str, entry: str) -> None:
    from peerd.entrypoints.process_parts import load_error_hook  # noqa: PLC0415 - as above

    load_error_hook(entry)


def _check_schedule(_: str, entry: str) -> None:
    from peerd.entrypoints.process_parts import import_object  # noqa: PLC0415 - as above
    from peerd.schedules.run_executor import NotAFunction  # noqa: PLC0415 - as above

    if not callable(found := import_object(entry)):
        raise NotAFunction(entry, found)


def _check_web(name: str, settings: Mapping[str, Any]) -> None:
    from peerd.entrypoints.web import load_app, require_server  # noqa: PLC0415 - as above

    section = deserialize_section(settings, WebSettings)
    require_server(name, section.app)
    load_app(name, section)


IMPORTERS: Final[Mapping[str, Callable[[str, Any], Mapping[str, Any] | None]]] = {
    "agent": _check_setup,
    "errors": _check_error_hook,
    "schedules": _check_schedule,
    "workers": _describe_worker,
    "web": _check_web,
}


if __name__ == "__main__":
    main(int(sys.argv[1]))
