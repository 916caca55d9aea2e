"""What a configuration names in the user's code: workers, apps, the agent's setup, the functions of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.cli.project.check_report import Findings
from peerd.cli.project.code_imports import Named, import_all
from peerd.config import Settings
from peerd.config.reading.source import Place
from peerd.config.reading.suggestions import near
from peerd.config.schedules import is_of_this_node

Answers = Mapping[Named, Mapping[str, Any]]
Served = dict[str, set[str] | None]
"""Queues, each with its handlers; or None where a worker takes any task."""


def examine_code(settings: Settings, environment: Mapping[str, str], found: Findings) -> None:
    """Import it, and hold the tasks of schedules against the handlers that are there."""
    answers = import_all(settings, environment)
    for (section, name), answer in answers.items():
        if "error" in answer:
            found.wrong(_place_of(section, name, settings), answer["error"], _remedy(answer["error"], settings))
        else:
            found.right.append(_right(section, name, settings, answer))
    _examine_tasks_of_schedules(settings, answers, found)


def _examine_tasks_of_schedules(settings: Settings, answers: Answers, found: Findings) -> None:
    served, all_are_known = _served(answers)
    for name, schedule in settings.schedules.items():
        queue, task = schedule.queue, schedule.task or ""
        if queue is None or not is_of_this_node(schedule, settings):
            continue
        if queue not in served:
            if all_are_known:
                message = f"no worker of this configuration serves the queue {queue}; its tasks wait for another node"
                found.doubtful(("schedules", name, "queue"), message, near(queue, served))
            continue
        handlers = served[queue]
        if handlers is not None and task not in handlers:
            message = f"queue {queue} has no handler {task!r}; there are: {', '.join(sorted(handlers)) or 'none'}"
            key = "queue" if schedule.task is None else "task"
            found.wrong(("schedules", name, key), message, near(task, handlers))


def _served(answers: Answers) -> tuple[Served, bool]:
    """The queues of all workers that could be imported, and whether these are all."""
    served: Served = {}
    workers = [answer for (section, _), answer in answers.items() if section == "workers"]
    for answer in workers:
        for queue, handlers in answer.get("queues", {}).items():
            others = served.get(queue, set())
            served[queue] = None if handlers is None or others is None else others | set(handlers)
    return served, all("error" not in answer for answer in workers)


def _place_of(section: str, name: str, settings: Settings) -> Place:
    match section:
        case "agent":
            return section, name
        case "web":
            return section, name, "app"
        case "schedules":
            return section, name, "run"
        case _:
            return section, name, "worker" if settings.workers[name].worker else "tasks"


def _right(section: str, name: str, settings: Settings, answer: Mapping[str, Any]) -> tuple[str, str]:
    match section:
        case "agent":
            return "agent", f"sets up by {settings.agent.setup}"
        case "web":
            return f"web {name}", f"serves {settings.web[name].app}"
        case "schedules":
            return f"schedule {name}", f"runs {settings.schedules[name].run}"
        case _:
            return f"worker {name}", _described(answer["queues"])


def _described(queues: Mapping[str, list[str] | None]) -> str:
    handlers = [handler for named in queues.values() for handler in named or ()]
    parts = [f"takes from {', '.join(queues)}"] if queues else []
    parts += [f"handles {', '.join(handlers)}"] if handlers else []
    return "; ".join(parts) or "loops by itself"


def _remedy(error: str, settings: Settings) -> str:
    if "ModuleNotFoundError" in error:
        return f"modules are looked for in {settings.project_directory} and where Python has its packages"
    return ""
