"""Who follows which key of one shared client. Each key is followed once at the source, however many follow it here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from peerd.shared.protocol import key_identity


class TopicSubscriber(Protocol):
    """Gets the values of a key."""

    def deliver(self, value: Any, number: int, generation: int) -> None:
        """Take a value; must not wait."""
        ...

    def fail(self, error: Exception) -> None:
        """Hear that nothing more will come."""
        ...


@dataclass(slots=True)
class Topic:
    """A key that somebody follows."""

    key: Any
    followers: list[TopicSubscriber] = field(default_factory=list)
    last: tuple[Any, int, int] | None = None
    """Value, number, generation."""
    was_followed: bool = False
    """Whether the source has taken it once: if it refuses it later, that is the connection's fault."""


class Topics:
    """The keys of one shared client.

    >>> class Printer:
    ...     def deliver(self, value, number, generation):
    ...         print(value, number, generation)
    >>> topics, early, late = Topics(), Printer(), Printer()
    >>> topics.add("film", early)
    >>> topics.emit("film", 17, generation=1)
    17 1 1
    >>> topics.add("film", late)                   # the last value at once
    17 1 1
    >>> len(topics.wanted)
    1
    """

    def __init__(self) -> None:
        self.wanted: dict[bytes, Topic] = {}
        """By the key's identity, those that are followed here."""

    def add(self, key: Any, follower: TopicSubscriber) -> None:
        """Let one more follow; the last value is given at once, if there is one."""
        topic = self.wanted.setdefault(key_identity(key), Topic(key))
        topic.followers.append(follower)
        if topic.last is not None:
            follower.deliver(*topic.last)

    def remove(self, key: Any, follower: TopicSubscriber) -> None:
        """Let one follow no more; the key is forgotten with the last of them."""
        topic = self.wanted.get(key_identity(key))
        if topic is not None and follower in topic.followers:
            topic.followers.remove(follower)
            if not topic.followers:
                del self.wanted[key_identity(key)]

    def emit(self, key: Any, value: Any, generation: int) -> None:
        """Give a value to all that follow its key."""
        topic = self.wanted.get(key_identity(key))
        if topic is None:
            return
        number = topic.last[1] + 1 if topic.last and topic.last[2] == generation else 1
        topic.last = (value, number, generation)
        for follower in list(topic.followers):
            follower.deliver(*topic.last)

    def fail(self, identity: bytes, error: Exception) -> None:
        """Nobody can follow this key."""
        for follower in self.wanted.pop(identity).followers:
            follower.fail(error)

    def fail_all(self, error: Exception) -> None:
        """Nobody can follow any key."""
        for identity in list(self.wanted):
            self.fail(identity, error)
