"""What is refused of what is rung: counted, told once a minute, and whether somebody rings whom nobody hears."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from peerd.doorbell.datagram import RejectionReason, RingRejected
from peerd.runtime.observability.events import EventBus, RingsRejected

LOG_EVERY: Final = 60.0
"""Seconds between two lines in the log about what is refused for one reason."""
UNHEARD_FOR: Final = 60.0
"""Seconds after the second of two such rings during which somebody may be ringing whom nobody hears."""
UNHEARD_REASONS: Final = {
    RejectionReason.SECRET: "rings with another secret: give all nodes and applications the same [cluster] secret",
    RejectionReason.CLOCK: "its clock is more than two minutes off: set the clocks by NTP, upgrade the sender",
}


class Refusals:
    """Those of one node's bell.

    One that is refused means nothing: anybody may send it. Two different ones that say that they are for this life of
    the node, and are of now or signed, are thought to come from somebody who belongs to the cluster.

    Args:
        events: where they are told.
        clock: monotonic, in seconds.
    """

    def __init__(self, events: EventBus, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._logged_at: dict[RejectionReason, float] = {}
        self._unheard: deque[tuple[float, RejectionReason, str, str]] = deque(maxlen=16)
        self.counts: Counter[RejectionReason] = Counter()
        self.last: tuple[RejectionReason, str] | None = None
        """Why, and who."""

    def refuse(self, refused: RingRejected, sender: str) -> None:
        """Something was refused."""
        rejection_reason, now = refused.rejection_reason, self._clock()
        self.counts[rejection_reason] += 1
        self.last = (rejection_reason, sender)
        if rejection_reason in UNHEARD_REASONS and refused.nonce is not None:
            self._unheard.append((now, rejection_reason, refused.nonce, sender))
        if (
            rejection_reason is not RejectionReason.AGAIN
            and now - self._logged_at.get(rejection_reason, -LOG_EVERY) >= LOG_EVERY
        ):
            self._logged_at[rejection_reason] = now
            self._events.emit(
                RingsRejected(sender=sender, reason=str(rejection_reason), count=self.counts[rejection_reason])
            )

    def unheard_sender_problem(self) -> str | None:
        """Who may be ringing whom nobody hears, and why; None where nobody is."""
        soonest = self._clock() - UNHEARD_FOR
        recent = [one for one in self._unheard.copy() if one[0] > soonest]
        for rejection_reason, text in UNHEARD_REASONS.items():
            senders = {nonce: sender for _, reason, nonce, sender in recent if reason is rejection_reason}
            if len(senders) > 1:
                return f"somebody at {list(senders.values())[-1]} {text}"
        return None
