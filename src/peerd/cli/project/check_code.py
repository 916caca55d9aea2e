"""What a configuration names in the user's code: workers, apps, the agent's setup, the functions of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.cli.project.check_report import ConfigReport
from peerd.cli.project.code_imports import SectionName, import_project_code
from peerd.config import Settings
from peerd.config.reading.source import KeyPath
from peerd.config.reading.suggestions import suggest_similar
from peerd.config.schedules import applies_to_node

ImportResults = Mapping[SectionName, Mapping[str, Any]]
ServedQueues = dict[str, set[str] | None]
"""Queues, each with its handlers; or None where a worker takes any task."""


def check_project_code(settings: Settings, environment: Mapping[str, str], report: ConfigReport) -> None:
    """Import it, and hold the tasks of schedules against the handlers that are there."""
    results = import_project_code(settings, environment)
    for (section, name), result in results.items():
        if "error" in result:
            report.add_problem(
                _key_path_of(section, name, settings), result["error"], _remedy(result["error"], settings)
            )
        else:
            report.passed.append(_describe_success(section, name, settings, result))
    _check_tasks_of_schedules(settings, results, report)


def _check_tasks_of_schedules(settings: Settings, results: ImportResults, report: ConfigReport) -> None:
    queues_served, complete = _served_queues(results)
    for name, schedule in settings.schedules.items():
        queue, task = schedule.queue, schedule.task or ""
        if queue is None or not applies_to_node(schedule, settings):
            continue
        if queue not in queues_served:
            if complete:
                message = f"no worker of this configuration serves the queue {queue}; its tasks wait for another node"
                report.add_warning(("schedules", name, "queue"), message, suggest_similar(queue, queues_served))
            continue
        handlers = queues_served[queue]
        if handlers is not None and task not in handlers:
            message = f"queue {queue} has no handler {task!r}; there are: {', '.join(sorted(handlers)) or 'none'}"
            key = "queue" if schedule.task is None else "task"
            report.add_problem(("schedules", name, key), message, suggest_similar(task, handlers))


def _served_queues(results: ImportResults) -> tuple[ServedQueues, bool]:
    """The queues of all workers that could be imported, and whether these are all."""
    queues_served: ServedQueues = {}
    workers = [result for (section, _), result in results.items() if section == "workers"]
    for result in workers:
        for queue, handlers in result.get("queues", {}).items():
            others = queues_served.get(queue, set())
            queues_served[queue] = None if handlers is None or others is None else others | set(handlers)
    return queues_served, all("error" not in result for result in workers)


def _key_path_of(section: str, name: str, settings: Settings) -> KeyPath:
    match section:
        case "agent":
            return section, name
        case "web":
            return section, name, "app"
        case "schedules":
            return section, name, "run"
        case _:
            return section, name, "worker" if settings.workers[name].worker else "tasks"


def _describe_success(section: str, name: str, settings: Settings, result: Mapping[str, Any]) -> tuple[str, str]:
    match section:
        case "agent":
            return "agent", f"sets up by {settings.agent.setup}"
        case "web":
            return f"web {name}", f"serves {settings.web[name].app}"
        case "schedules":
            return f"schedule {name}", f"runs {settings.schedules[name].run}"
        case _:
            return f"worker {name}", _describe_worker(result["queues"])


def _describe_worker(queues: Mapping[str, list[str] | None]) -> str:
    handlers = [handler for named in queues.values() for handler in named or ()]
    parts = [f"takes from {', '.join(queues)}"] if queues else []
    parts += [f"handles {', '.join(handlers)}"] if handlers else []
    return "; ".join(parts) or "loops by itself"


def _remedy(error: str, settings: Settings) -> str:
    if "ModuleNotFoundError" in error:
        return f"modules are looked for in {settings.project_directory} and where Python has its packages"
    return ""
