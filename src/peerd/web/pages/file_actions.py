"""The actions on files and disks."""

from __future__ import annotations

from typing import Final

from peerd.operate.files import FilesChecked
from peerd.web.pages.actions import ActionCall, ActionDone, PageAction
from peerd.web.pages.addresses import folder_of, list_address
from peerd.web.pages.formats import number, one_line


def _is_verified(_: ActionCall, checked: FilesChecked) -> str:
    copies = checked.verifications
    what = f"{number(copies)} {'copy is' if copies == 1 else 'copies are'} verified by tasks"
    return f"{what}, and what the file needs is decided again." if copies else "Tasks verify it already."


async def _delete(call: ActionCall) -> ActionDone:
    removed = await call.client.files.remove(call.key)
    text = f"{one_line(call.key)} was deleted; its copies are removed by tasks."
    return ActionDone(text, list_address(removed.bucket, folder_of(removed.key)))


async def _last_copies(call: ActionCall) -> str:
    count = await call.client.disks.last_copies(int(call.key))
    return f"Without another copy that can be read now: {count}." if count.files else ""


FILE_ACTIONS: Final = (
    PageAction(
        "files.verify",
        "Verify",
        effect="Each copy of {key} is read and compared with the catalogue; a bad one is made anew.",
        notice=_is_verified,
    ),
    PageAction(
        "files.delete",
        "Delete",
        effect="{key} is deleted, and its copies are removed from all disks.",
        operation="files.remove",
        run=_delete,
        is_destructive=True,
    ),
    PageAction(
        "disks.drain",
        "Drain",
        effect="The copies on disk {key} are made anew on others, and then removed from it.",
        notice="Disk {key} is drained; below you see it become empty.",
        undo="activate",
    ),
    PageAction(
        "disks.readonly",
        "Set read only",
        effect="The copies on disk {key} are kept and read; it gets no new ones.",
        notice="Disk {key} gets no new copies.",
        undo="activate",
    ),
    PageAction(
        "disks.activate",
        "Return to use",
        effect="Disk {key} gets copies again.",
        notice="Disk {key} is in use: it gets copies.",
    ),
    PageAction(
        "disks.lost",
        "Declare lost",
        effect="Disk {key} will not come back: its copies do not exist any more, and are made anew from others. "
        "There is no way back.",
        notice="Disk {key} is lost: its files are copied from their other copies.",
        warning=_last_copies,
        is_destructive=True,
    ),
    PageAction(
        "disks.remove",
        "Remove",
        effect="Disk {key} is removed from the catalogue, if it has no copies. Its folder stays as it is.",
        notice="Disk {key} was removed from the catalogue.",
        leads_to="/disks",
        is_destructive=True,
    ),
)
