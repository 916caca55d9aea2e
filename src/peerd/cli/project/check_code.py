"""Checks the user code that a configuration names: workers, web apps, the agent's setup, functions of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.cli.project.check_report import ConfigReport
from peerd.cli.project.code_imports import SectionName, import_project_code
from peerd.config import Settings
from peerd.config.problems import KeyPath, suggest_similar
from peerd.config.schedules import applies_to_node

ImportResults = Mapping[SectionName, Mapping[str, Any]]
ServedQueues = dict[str, set[str] | None]
"""Queues, each with its handlers; None if a worker takes any task."""


def check_project_code(settings: Settings, environment: Mapping[str, str], report: ConfigReport) -> None:
    """Import the code, and check that the tasks of schedules have handlers."""
    results = import_project_code(settings, environment)
    for (section, name), result in results.items():
        if "error" in result:
            error = result["error"]
            remedy = f"modules are searched in {settings.project_directory} and in Python's packages"
            is_missing = "ModuleNotFoundError" in error
            report.add_problem(_key_path_of(section, name, settings), error, remedy if is_missing else "")
        else:
            report.passed.append(_describe_success(section, name, settings, result))
    _check_tasks_of_schedules(settings, results, report)


def _check_tasks_of_schedules(settings: Settings, results: ImportResults, report: ConfigReport) -> None:
    queues_served = _served_queues(results)
    complete = not any(section == "workers" and "error" in result for (section, _), result in results.items())
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


def _served_queues(results: ImportResults) -> ServedQueues:
    """The queues of all workers that could be imported."""
    queues_served: ServedQueues = {}
    for result in results.values():
        for queue, handlers in result.get("queues", {}).items():
            others = queues_served.get(queue, set())
            queues_served[queue] = None if handlers is None or others is None else others | set(handlers)
    return queues_served


def _key_path_of(section: str, name: str, settings: Settings) -> KeyPath:
    match section:
        case "agent" | "errors":
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
            return "agent", f"is set up by {settings.agent.setup}"
        case "errors":
            return "errors", f"are given to {settings.errors.hook}"
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
    return "; ".join(parts) or "runs its own loop"
