"""What operations on contents begin with: the rights of the actor, its files, and what moves contents for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peerd.domain.access import Right
from peerd.domain.errors import NotPermitted, PeerdError
from peerd.domain.quoting import quoted
from peerd.operate.guard import OperationCall
from peerd.operate.modes import BlockingMode, Mode
from peerd.operate.operations import OperationGroup

if TYPE_CHECKING:
    from peerd.storage.client import ContentTransfer


class StorageNotInstalled(PeerdError, ImportError):
    """The extra ``storage`` is not installed here."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"contents cannot be put or got here: {problem}; pip install 'peerd[storage]'")


class FileAdmission(OperationGroup[Mode]):
    """Operations that an actor may do on its files."""

    def _admit(self, name: str, right: Right, bucket: str, key: str) -> None:
        """Refuse it to an actor without the right, or of other files, with an entry of the audit log."""
        self._admit_right(name, right, {"path": f"{bucket}/{key}"}, lambda: self._require_files(name, bucket, key))

    def _admit_right(
        self, name: str, right: Right, arguments: dict[str, object], require: Callable[[], None] = lambda: None
    ) -> None:
        """Refuse it to an actor without the right, or where `require` does, with an entry of the audit log."""
        mode: BlockingMode = self.mode.blocking
        call = OperationCall(name, mode.actor, mode.masker, arguments, mode.refusals)
        try:
            call.require(right, in_queues=True)
            require()
        except NotPermitted as error:
            mode.execute(call.refused(error))

    def _require_files(self, name: str, bucket: str, prefix: str = "") -> None:
        """Refuse what is about other files than those of the actor; raises `NotPermitted`."""
        if not self._actor.covers_files(bucket, prefix):
            raise NotPermitted(self._actor.name, name, f"{quoted(f'{bucket}/{prefix}')} is none of its files")

    def _require_all_files(self, name: str) -> None:
        """Refuse what is about all files to an actor of some; raises `NotPermitted`."""
        if self._actor.file_scopes is not None:
            raise NotPermitted(self._actor.name, name, "it is about all files, and the actor is restricted to some")

    def _transfer(self) -> ContentTransfer:
        mode: BlockingMode = self.mode.blocking
        try:
            return mode.open_transfer()
        except ImportError as error:
            raise StorageNotInstalled(str(error)) from error
