"""What is refused of what is rung: counted, told once a minute, and whether somebody rings whom nobody hears."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from peerd.doorbell.datagram import Refused, RingRefused
from peerd.runtime.observability.events import Events, RingsRefused

SAY_EVERY: Final = 60.0
"""Seconds between two lines in the log about what is refused for one reason."""
UNHEARD_FOR: Final = 60.0
"""Seconds after the second of two such rings during which somebody may be ringing whom nobody hears."""
UNHEARD: Final = {
    Refused.SECRET: "rings with another secret: give all nodes and applications the same [cluster] secret",
    Refused.CLOCK: "rings by a clock that is more than two minutes off: set the clocks by NTP, and upgrade what rings",
}


class Refusals:
    """Those of one node's bell.

    One that is refused means nothing: anybody may send it. Two different ones that say that they are for this life of
    the node, and are of now or signed, are thought to come from somebody who belongs to the cluster.

    Args:
        events: where they are told.
        clock: monotonic, in seconds.
    """

    def __init__(self, events: Events, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._said_at: dict[Refused, float] = {}
        self._unheard: deque[tuple[float, Refused, str, str]] = deque(maxlen=16)
        self.counts: Counter[Refused] = Counter()
        self.last: tuple[Refused, str] | None = None
        """Why, and who."""

    def refuse(self, refused: RingRefused, sender: str) -> None:
        """Something was refused."""
        why, now = refused.why, self._clock()
        self.counts[why] += 1
        self.last = (why, sender)
        if why in UNHEARD and refused.nonce is not None:
            self._unheard.append((now, why, refused.nonce, sender))
        if why is not Refused.AGAIN and now - self._said_at.get(why, -SAY_EVERY) >= SAY_EVERY:
            self._said_at[why] = now
            self._events.emit(RingsRefused(sender=sender, reason=str(why), count=self.counts[why]))

    def of_somebody_unheard(self) -> str | None:
        """Who may be ringing whom nobody hears, and why; None where nobody is."""
        soonest = self._clock() - UNHEARD_FOR
        recent = [one for one in self._unheard.copy() if one[0] > soonest]
        for why, words in UNHEARD.items():
            senders = {nonce: sender for _, reason, nonce, sender in recent if reason is why}
            if len(senders) > 1:
                return f"somebody at {list(senders.values())[-1]} {words}"
        return None
