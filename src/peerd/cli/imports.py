"""Import what the workers of a project name, in a process of its own: user code may print, exit, or never return.

python -P -m peerd.cli.imports FD        reads {"project_directory", "workers"} from stdin, writes lines to FD
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from peerd.config import Settings, WorkerSettings

TIMEOUT: Final = 60.0
"""Seconds for all imports together."""


def import_workers(settings: Settings) -> dict[str, dict[str, Any]]:
    """What each enabled worker is: ``{"queues": …, "handlers": …}``, or ``{"error": …}``."""
    workers = {name: worker for name, worker in settings.workers.items() if worker.enabled}
    if not workers:
        return {}
    request = {
        "project_directory": str(settings.project_directory),
        "workers": {name: worker.model_dump(mode="json", exclude_unset=True) for name, worker in workers.items()},
    }
    answers = {answer["worker"]: answer for answer in _ask(json.dumps(request))}
    ended = answers.pop(None, {}).get("error", "")
    for name in workers:
        if name not in answers:
            answers[name] = {"worker": name, "error": ended}
            break  # those after it were not looked at
    return answers


def import_setup(settings: Settings) -> str | None:
    """What is wrong with what [agent] setup names; None when nothing is."""
    request = {"project_directory": str(settings.project_directory), "setup": settings.agent.setup}
    answer: dict[str, Any] = next(_ask(json.dumps(request)))
    return answer.get("error")


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
        yield {"worker": None, "error": ended}


def main(fd: int) -> None:
    """Import, in the process of its own."""
    from peerd.assembly.worker import BadWorker  # noqa: PLC0415 - only this process needs it

    request = json.load(sys.stdin)
    sys.path.insert(0, request["project_directory"])
    os.chdir(request["project_directory"])
    with os.fdopen(fd, "w", encoding="utf-8") as answers:
        if "setup" in request:
            answers.write(json.dumps(_describe_setup(request["setup"])) + "\n")
        for name, given in request.get("workers", {}).items():
            try:
                answer = _describe(name, WorkerSettings(**given))
            except BadWorker as error:
                answer = {"error": str(error).removeprefix(f"[workers.{name}] ")}
            answers.write(json.dumps({"worker": name, **answer}) + "\n")
            answers.flush()
    os._exit(0)  # threads that an import has started hold nothing up


def _describe(name: str, given: WorkerSettings) -> Mapping[str, Any]:
    from peerd.assembly.worker import load, load_worker  # noqa: PLC0415 - as above

    worker = load_worker(name, given)
    queues = [load(name, entry) for entry in given.tasks or ()]
    handlers = [handler for queue in queues for handler in getattr(queue, "handlers", ())]
    return {"queues": list(worker.settings.queues), "handlers": handlers}


def _describe_setup(entry: str) -> Mapping[str, Any]:
    from peerd.assembly.agent import find_setup  # noqa: PLC0415 - as above
    from peerd.assembly.entry import NoEntry  # noqa: PLC0415

    try:
        find_setup(entry)
    except NoEntry as error:
        return {"worker": None, "error": str(error)}
    return {"worker": None}


if __name__ == "__main__":
    main(int(sys.argv[1]))
