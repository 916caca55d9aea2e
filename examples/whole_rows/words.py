"""A TaskWorker gets the whole row, whatever its body is."""

from peerd import Task, TaskWorker


class Words(TaskWorker):
    """Counts words. A body that is not JSON reads as None; here the text itself is wanted."""

    queues = ("words", "words-low")
    count = 2

    async def handle_task(self, task: Task) -> dict[str, int]:
        """Count; what is raised is a failure, and the task is tried again after `delay`."""
        if task.body is None:
            raise ValueError("there is no text")
        await self.set_progress(task, 0.5, "counting")
        return {"words": len(task.body.split())}
