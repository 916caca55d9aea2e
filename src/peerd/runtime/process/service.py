"""What a supervised process is made of, seen from its life: five steps that `peerd.runtime.process.service_runner`
calls in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from peerd.runtime.process.link import Link


class Service(Protocol):
    """The work of one child process. All methods run on the process's event loop, one life per object.

    The order is start → run, with `receive` for each message in the order of their sending, → quiet → stop. `run` goes
    on during `quiet` and `stop`; what is left of it afterwards is cancelled.
    """

    async def start(self, link: Link) -> Mapping[str, object]:
        """Become ready; return what identifies the process to the agent, such as `{"process_id": 17}`.

        An exception is a failed boot (exit status 3): it takes back itself what it has begun. It is cancelled, and no
        other method is called, when the node stops meanwhile.
        """
        ...

    async def run(self) -> None:
        """Do the work. Returning means that the process leaves for good, status 0; raising is a crash, status 70.

        Nothing else is called after it has returned by itself. (An agent that leaves is replaced all the same.)
        """
        ...

    async def receive(self, message: Mapping[str, object]) -> None:
        """Take a message of the master, one at a time: `{"type": "ready"}` once the whole node is ready, and others.

        The agent gets `{"type": "death", "id": n, …}` for each process that has died, until it answers on the link with
        `{"type": "death-acknowledged", "id": n}`. An exception taints the process.
        """
        ...

    async def quiet(self) -> None:
        """Take no new work."""
        ...

    async def stop(self, grace: float) -> None:
        """Finish what runs within `grace` seconds, then give the rest back, and return.

        Giving back has a few seconds more, then the process is ended the hard way. When somebody hurries, the call is
        cancelled and made again with grace 0, so it must be possible to call it twice.
        """
        ...
