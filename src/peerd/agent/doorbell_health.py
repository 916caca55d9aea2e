"""Whether the doorbell works. Workers poll rarely only while it is known to work.

The doorbell works while the agent receives the pings that it sends to its own address, every active node has an
address, and no sender that belongs to the cluster is rejected. A single rejected ring proves nothing, because any
machine can send one; two different ones that name this incarnation of the node, and are of the present time or signed,
are taken for those of a member of the cluster whose secret or clock is wrong.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.ring import Ping
from peerd.doorbell.datagram import RejectionReason, RingRejected
from peerd.runtime.observability.events import EventBus, RingsRejected
from peerd.runtime.observability.log_messages import doorbell_changed

PING_EVERY: Final = 30.0
"""Seconds between two pings while the doorbell works."""
PING_AGAIN_AFTER: Final = 5.0
"""Seconds between two pings while the doorbell does not work."""
PING_WITHIN: Final = 1.0
"""Seconds that a ping may take."""
LOG_EVERY: Final = 60.0
"""Seconds between two log lines about rings rejected for the same reason."""
MISCONFIGURED_FOR: Final = 60.0
"""Seconds after the second of two such rings during which a sender counts as misconfigured."""
MISCONFIGURATIONS: Final = {
    RejectionReason.SECRET: "rings with another secret: give all nodes and applications the same [cluster] secret",
    RejectionReason.CLOCK: "has a clock that is more than two minutes off: set the clocks by NTP, upgrade the sender",
}


@dataclass(eq=False)
class RejectedRings:
    """Counts the rings that this node rejects, and logs them once a minute for each reason.

    Attributes:
        last: reason and sender.
    """

    events: EventBus
    clock: Callable[[], float] = time.monotonic
    counts: Counter[RejectionReason] = field(default_factory=Counter)
    last: tuple[RejectionReason, str] | None = None

    def __post_init__(self) -> None:
        self._logged_at: dict[RejectionReason, float] = {}
        self._from_members: deque[tuple[float, RejectionReason, str, str]] = deque(maxlen=16)

    def add(self, error: RingRejected, sender: str) -> None:
        reason, now = error.rejection_reason, self.clock()
        self.counts[reason] += 1
        self.last = (reason, sender)
        if reason in MISCONFIGURATIONS and error.nonce is not None:
            self._from_members.append((now, reason, error.nonce, sender))
        is_logged = now - self._logged_at.get(reason, -LOG_EVERY) < LOG_EVERY
        if reason is not RejectionReason.AGAIN and not is_logged:
            self._logged_at[reason] = now
            self.events.emit(RingsRejected(sender=sender, reason=str(reason), count=self.counts[reason]))

    def misconfigured_sender(self) -> str | None:
        """Which sender of the cluster is rejected, and why; None where none is."""
        since = self.clock() - MISCONFIGURED_FOR
        recent = [one for one in self._from_members.copy() if one[0] > since]
        for reason, text in MISCONFIGURATIONS.items():
            senders = {nonce: sender for _, its_reason, nonce, sender in recent if its_reason is reason}
            if len(senders) > 1:
                return f"a sender at {list(senders.values())[-1]} {text}"
        return None


@dataclass(eq=False)
class DoorbellHealth:
    """Pings this node's own doorbell, and keeps its status.

    Args:
        transport: `datagrams` or `notify`.
        on_change: called when the doorbell begins or ceases to work.
    """

    transport: str
    events: EventBus
    on_change: Callable[[], None]

    def __post_init__(self) -> None:
        self.rejected = RejectedRings(self.events)
        self.address: str | None = None
        """Where the node receives datagrams."""
        self.problem: str | None = "it has not been tried yet"
        """Why the doorbell is not known to work; None when it is."""
        self._listener_problem: str | None = None
        self._was_working: bool | None = None
        self._ping_needed = asyncio.Event()
        self._ping_task: asyncio.Future[None] | None = None
        self._expected_ping: tuple[str, asyncio.Event] | None = None

    def to_json(self, rings_received: int) -> dict[str, Any]:
        """The status, as `peerd status --json` shows it."""
        last = self.rejected.last
        return {
            "works": self.problem is None,
            "transport": self.transport,
            "reason": self.problem,
            "address": self.address,
            "rings_received": rings_received,
            "refused": {str(reason): count for reason, count in self.rejected.counts.copy().items()},
            "last_refused": None if last is None else "{}, from {}".format(*last),
        }

    def set_problem(self, problem: str | None) -> None:
        """Set the status; a change of it is logged."""
        self.problem, works = problem, problem is None
        if works is not self._was_working:
            self._was_working = works
            self.events.emit(doorbell_changed(problem, works=works))
            self.on_change()

    def on_listener_change(self, problem: str | None) -> None:
        """Take note that the listener has lost its connection, or has it again."""
        self._listener_problem = problem
        if problem is not None:
            self.set_problem(problem)
        else:
            self._ping_needed.set()

    def receive_ping(self, word: str) -> None:
        """Take note that a ping has arrived."""
        if self._expected_ping is not None and self._expected_ping[0] == word:
            self._expected_ping[1].set()

    async def run(
        self, send: Callable[[Sequence[Ping]], None], find_unreachable: Callable[[], Awaitable[Sequence[str]]]
    ) -> None:
        """Check until cancelled.

        Args:
            send: sends pings to this node; called in a thread.
            find_unreachable: gives the names of the active nodes that cannot be rung at.
        """
        self._send, self._find_unreachable = send, find_unreachable
        while True:
            self._ping_needed.clear()
            try:
                self.set_problem(await self._find_problem())
            except DatabaseUnavailable as error:
                self.set_problem(str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_EVERY if self.problem is None else PING_AGAIN_AFTER):
                    await self._ping_needed.wait()

    async def _find_problem(self) -> str | None:
        if self._listener_problem is not None:
            return self._listener_problem
        if not await self._receives_own_ping():
            if self.address is None:
                return "a notification of our own did not come back within a second"
            problem = f"a datagram to {self.address} did not arrive"
            return f"{problem}: is that this machine ([node] address), and UDP not blocked?"
        if unreachable := await self._find_unreachable():
            return f"{', '.join(unreachable)} cannot be rung at: give the same [cluster] secret there"
        return self.rejected.misconfigured_sender()

    async def _receives_own_ping(self) -> bool:
        if self._ping_task is not None and not self._ping_task.done():
            return False  # the ping before is not sent yet; each would block one more thread
        word, arrived = secrets.token_hex(8), asyncio.Event()
        self._expected_ping = (word, arrived)
        try:
            async with asyncio.timeout(PING_WITHIN):
                self._ping_task = asyncio.ensure_future(asyncio.to_thread(self._send, [Ping(word)]))
                # a ping that ends late may fail: its exception counts as retrieved
                self._ping_task.add_done_callback(lambda task: task.cancelled() or task.exception())
                await asyncio.shield(self._ping_task)
                await arrived.wait()
        except TimeoutError:
            return False
        finally:
            self._expected_ping = None
        return True
