"""The actions on files and disks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

from peerd.operate.client import AioClient
from peerd.web.pages.actions import ActionCall, ActionDone, PageAction
from peerd.web.pages.formats import number, one_line
from peerd.web.pages.subjects import Subject


def list_address(bucket: str, prefix: str = "") -> str:
    """The address of a list of files.

    >>> list_address("films", "2026/")
    '/files/list?bucket=films&prefix=2026%2F'
    """
    return f"/files/list?{urlencode({'bucket': bucket} | ({'prefix': prefix} if prefix else {}))}"


def folder_of(key: str) -> str:
    """The part of a key up to its last slash.

    >>> folder_of("2026/one.mov"), folder_of("one.mov")
    ('2026/', '')
    """
    return key[: key.rfind("/") + 1]


async def _verify(call: ActionCall) -> ActionDone:
    copies = (await call.client.files.verify(call.key)).verifications
    what = f"{number(copies)} {'copy is' if copies == 1 else 'copies are'} verified by tasks"
    return ActionDone(f"{what}, and what the file needs is decided again." if copies else "Tasks verify it already.")


async def _delete(call: ActionCall) -> ActionDone:
    removed = await call.client.files.remove(call.key)
    text = f"{one_line(call.key)} was deleted; its copies are removed by tasks."
    return ActionDone(text, list_address(removed.bucket, folder_of(removed.key)))


Change = Callable[[AioClient, int], Awaitable[object]]


def _set(change: Change, text: str, undo: str | None = None) -> Callable[[ActionCall], Awaitable[ActionDone]]:
    async def run(call: ActionCall) -> ActionDone:
        await change(call.client, int(call.key))
        back = None if undo is None else Subject.DISK.action(call.key, undo)
        return ActionDone(f"Disk {call.key} {text}", undo=back)

    return run


async def _remove_disk(call: ActionCall) -> ActionDone:
    await call.client.disks.remove(int(call.key))
    return ActionDone(f"Disk {call.key} was removed from the catalogue.", "/disks")


async def _last_copies(call: ActionCall) -> str:
    count = await call.client.disks.last_copies(int(call.key))
    return f"Without another copy that can be read now: {count}." if count.files else ""


FILE_ACTIONS: Final = (
    PageAction(
        subject=Subject.FILE,
        verb="verify",
        label="Verify",
        run=_verify,
        needs_all_queues=True,
        effect="Each copy of {key} is read and compared with the catalogue; a bad one is made anew.",
    ),
    PageAction(
        subject=Subject.FILE,
        verb="delete",
        label="Delete",
        run=_delete,
        is_destructive=True,
        needs_all_queues=True,
        effect="{key} is deleted, and its copies are removed from all disks.",
    ),
    PageAction(
        subject=Subject.DISK,
        verb="drain",
        label="Drain",
        run=_set(
            lambda client, disk: client.disks.drain(disk), "is drained; below you see it become empty.", "activate"
        ),
        needs_all_queues=True,
        effect="The copies on disk {key} are made anew on others, and then removed from it.",
    ),
    PageAction(
        subject=Subject.DISK,
        verb="readonly",
        label="Set read only",
        run=_set(lambda client, disk: client.disks.readonly(disk), "gets no new copies.", "activate"),
        needs_all_queues=True,
        effect="The copies on disk {key} are kept and read; it gets no new ones.",
    ),
    PageAction(
        subject=Subject.DISK,
        verb="activate",
        label="Return to use",
        run=_set(lambda client, disk: client.disks.activate(disk), "is in use: it gets copies."),
        needs_all_queues=True,
        effect="Disk {key} gets copies again.",
    ),
    PageAction(
        subject=Subject.DISK,
        verb="lost",
        label="Declare lost",
        run=_set(
            lambda client, disk: client.disks.lost(disk), "is lost: its files are copied from their other copies."
        ),
        warning=_last_copies,
        is_destructive=True,
        needs_all_queues=True,
        effect="Disk {key} will not come back: its copies do not exist any more, and are made anew from others. "
        "There is no way back.",
    ),
    PageAction(
        subject=Subject.DISK,
        verb="remove",
        label="Remove",
        run=_remove_disk,
        is_destructive=True,
        needs_all_queues=True,
        effect="Disk {key} is removed from the catalogue, if it has no copies. Its folder stays as it is.",
    ),
)
