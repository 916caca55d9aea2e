"""The queue, the handlers and the worker that the tests of the inline node run."""

from __future__ import annotations

from peerd import Context, Queue, Task, TaskWorker

mail = Queue("mail")
ran: list[str] = []


@mail.task(max_attempts=4)
async def send(ctx: Context, to: str = "you") -> str:
    ran.append(to)
    await ctx.progress(0.5, "dialled")
    if to == "unknown":
        raise OSError("no such address")
    return f"sent to {to} by {ctx.node}"


@mail.task
async def invite(ctx: Context, recipients: list[str]) -> None:
    for recipient in recipients:
        await ctx.enqueue(send.with_args(recipient), priority=20)
    ran.append("invited")


class Legacy(TaskWorker):
    queues = ("legacy",)
    delay_ratio = 60.0

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def setup(self) -> None:
        self.calls.append("setup")

    async def fail_setup(self) -> None:
        raise ValueError("no licence")

    async def teardown(self) -> None:
        self.calls.append("teardown")

    async def handle_task(self, task: Task) -> object:
        await self.set_progress(task, 0.25, "a quarter")
        if task.json is None:
            raise ValueError("no json")
        return task.json


def statuses(tasks: list[Task]) -> list[str]:
    return [task.status.value for task in tasks]
