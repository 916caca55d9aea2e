"""Import what a project's workers and web sections name, in a process of its own: user code may do anything.

python -P -m peerd.cli.imports FD        reads {"project_directory", "named"} from stdin, writes lines to FD
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from peerd.config import Settings, WebSettings, WorkerSettings
from peerd.domain.errors import PeerdError

TIMEOUT: Final = 60.0
"""Seconds for all imports together."""


Named = tuple[str, str]
"""A section of the config, and a name in it."""


def import_all(settings: Settings) -> dict[Named, dict[str, Any]]:
    """What each enabled worker, each web app and the agent's setup is.

    A worker is ``{"queues": …, "handlers": …}``, the others ``{}``; ``{"error": …}`` is what is wrong with one.
    """
    named = list(_named(settings))
    if not named:
        return {}
    request = {"project_directory": str(settings.project_directory), "named": named}
    answers: dict[Any, dict[str, Any]] = {}
    for answer in _ask(json.dumps(request)):
        answers[answer.pop("section"), answer.pop("name")] = answer
    ended = answers.pop((None, None), {}).get("error", "")
    for section, name, _ in named:
        if (section, name) not in answers:
            answers[section, name] = {"error": ended}
            break  # those after it were not looked at
    return answers


def _named(settings: Settings) -> Iterator[tuple[str, str, Any]]:
    for name, worker in settings.workers.items():
        if worker.enabled:
            yield "workers", name, worker.model_dump(mode="json", exclude_unset=True)
    for name, web in settings.web.items():
        if web.enabled:
            yield "web", name, web.model_dump(mode="json", exclude_unset=True)
    if settings.agent.setup is not None:
        yield "agent", "setup", settings.agent.setup


def _ask(request: str) -> Iterator[dict[Any, Any]]:
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as answers:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "peerd.cli.imports", str(writer)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[writer], text=True,
            )  # fmt: skip
        finally:
            os.close(writer)
        try:
            process.communicate(request, timeout=TIMEOUT)
            ended = f"importing it ended the process with status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = f"importing it took more than {TIMEOUT:g} s"
        yield from map(json.loads, answers)
        yield {"section": None, "name": None, "error": ended}


def main(fd: int) -> None:
    """Import, in the process of its own."""
    from peerd.assembly.entry import NoEntry  # noqa: PLC0415 - only this process needs it

    request = json.load(sys.stdin)
    sys.path.insert(0, request["project_directory"])
    os.chdir(request["project_directory"])
    with os.fdopen(fd, "w", encoding="utf-8") as answers:
        for section, name, given in request["named"]:
            try:
                answer = DESCRIBE[section](name, given)
            except (PeerdError, NoEntry) as error:
                answer = {"error": str(error).removeprefix(f"[{section}.{name}] ")}
            answers.write(json.dumps({"section": section, "name": name, **answer}) + "\n")
            answers.flush()
    os._exit(0)  # threads that an import has started hold nothing up


def _describe_worker(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    from peerd.assembly.worker import load, load_worker  # noqa: PLC0415 - only this process needs it

    given = WorkerSettings(**settings)
    worker = load_worker(name, given)
    queues = [load(name, entry) for entry in given.tasks or ()]
    handlers = [handler for queue in queues for handler in getattr(queue, "handlers", ())]
    return {"queues": list(worker.settings.queues), "handlers": handlers}


def _describe_setup(_: str, entry: str) -> Mapping[str, Any]:
    from peerd.assembly.agent import find_setup  # noqa: PLC0415 - as above

    find_setup(entry)
    return {}


def _describe_web(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    from peerd.assembly.web import load_app, require_server  # noqa: PLC0415 - as above

    given = WebSettings(**settings)
    require_server(name, given.app)
    load_app(name, given)
    return {}


DESCRIBE: Final[Mapping[str, Callable[[str, Any], Mapping[str, Any]]]] = {
    "agent": _describe_setup,
    "workers": _describe_worker,
    "web": _describe_web,
}


if __name__ == "__main__":
    main(int(sys.argv[1]))
