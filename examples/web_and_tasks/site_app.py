"""The site, in plain ASGI, so that it needs nothing but peerd[web]; with a framework it is shorter."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from pictures import FOLDER, draw

from peerd import (
    IllegalTransition,
    InvalidArguments,
    InvalidTask,
    Message,
    ProcessContext,
    ScheduleContext,
    Task,
    TaskNotFound,
)

PAGE = Path(__file__).with_name("page.html")
LARGEST_BODY = 10_000
LATEST = 10


class Answer(NamedTuple):
    """What a request is answered with."""

    status: int
    body: bytes
    content_type: str = "application/json"


def say(status: int, value: object) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(value).encode() + b"\n")


class Site:
    """Enqueues tasks, shows how far they are, and knows the latest pictures, because their workers tell it."""

    def __init__(self) -> None:
        self.latest: dict[int, dict[str, Any]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """What a web process calls: once for its own life, and for each request."""
        process: ProcessContext = scope["state"]["peerd"]
        match scope["type"]:
            case "lifespan":
                await self.live(process, receive, send)
            case "http":
                await reply(send, await self.answer(process, scope, receive))

    async def live(self, process: ProcessContext, receive: Any, send: Any) -> None:
        """Listen first, then read what was drawn before."""
        await receive()
        process.messenger.on("drawn", self.told)
        await self.read(process)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def told(self, message: Message) -> None:
        """A worker says that a picture is ready."""
        self.add(message.data)

    async def read(self, process: ProcessContext) -> None:
        """Read what was drawn while nobody could tell this process."""
        for task in await process.client.aio.tasks.list(queue=draw.queue.name, status="done", limit=LATEST):
            self.add(json.loads(task.result))

    def add(self, drawn: dict[str, Any]) -> None:
        """Know one more picture, and forget the oldest."""
        self.latest[drawn["id"]] = drawn
        if len(self.latest) > LATEST:
            del self.latest[min(self.latest)]

    async def answer(self, process: ProcessContext, scope: Any, receive: Any) -> Answer:
        """Do what is wanted, or say why not."""
        try:
            return await self.act(process, scope["method"], scope["path"].strip("/").split("/"), receive)
        except (InvalidArguments, InvalidTask) as error:
            return say(400, {"error": str(error)})
        except IllegalTransition as error:
            return say(409, {"error": str(error)})
        except (TaskNotFound, FileNotFoundError, ValueError):
            return say(404, {"error": "there is no such thing"})

    async def act(self, process: ProcessContext, method: str, path: list[str], receive: Any) -> Answer:
        """Find out what is wanted, and do it."""
        match method, path:
            case "GET", [""]:
                return Answer(200, PAGE.read_bytes(), "text/html; charset=utf-8")
            case "GET", ["pictures"]:
                latest = [self.latest[number] for number in sorted(self.latest, reverse=True)]
                return say(200, {"told": process.slot, "latest": latest})
            case "POST", ["pictures"]:
                return await self.enqueue(process, await body_of(receive))
            case "GET", ["pictures", number]:
                return Answer(200, (FOLDER / f"{int(number)}.png").read_bytes(), "image/png")
            case "GET", ["jobs", number]:
                return say(200, shown(await self.job(process, number)))
            case "DELETE", ["jobs", number]:
                await process.client.aio.tasks.cancel((await self.job(process, number)).id)
                return say(202, {})
        raise ValueError("nothing is served there")

    async def enqueue(self, process: ProcessContext, body: bytes) -> Answer:
        """Have a picture drawn, and say at once where to look for it."""
        try:
            wish = json.loads(body)
        except (ValueError, RecursionError):  # the latter: brackets upon brackets
            wish = None
        if not isinstance(wish, dict):
            return say(400, {"error": 'expected an object, such as {"title": "mine", "width": 400}'})
        job = await process.client.aio.enqueue(draw.with_args(**wish))
        return say(202, {"job": f"/jobs/{job.id}"})

    async def job(self, process: ProcessContext, number: str) -> Task:
        """A task of ours; others are nobody's business here."""
        task: Task = await process.client.aio.tasks.get(int(number))
        if task.queue != draw.queue.name:
            raise TaskNotFound(task.id)
        return task


def shown(task: Task) -> dict[str, object]:
    """What a visitor may see of a task: its error, for one, is for us."""
    return {
        "status": task.status,
        "progress": task.progress,
        "note": task.progress_note,
        "result": None if task.result is None else json.loads(task.result),
    }


async def body_of(receive: Any) -> bytes:
    """The request's body, or no more of it than we want to have."""
    body, more = b"", True
    while more and len(body) <= LARGEST_BODY:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body[:LARGEST_BODY]


async def reply(send: Any, answer: Answer) -> None:
    """Send an answer."""
    headers = [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


site = Site()


async def read_latest(ctx: ScheduleContext) -> None:
    """For the clock: messages are quick, and the table is right."""
    await site.read(ctx.process)
