"""What clients saw of files, key by key, and the rules that it is judged by.

Each key has one client that changes it, one request after the other; any client reads it. A change whose outcome its
client does not know may take effect at any time later: its key is changed no more, and either state is right from then
on. All others are exact: what was acknowledged last is there, and a read finds what was there while it ran.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

ABSENT: Final = ""
"""The digest of a key that has no file."""


class SeenVersion(msgspec.Struct, eq=False):
    """A state of a key: a content, or none.

    Attributes:
        digest: BLAKE3 of the content in hex; ABSENT: there is no file.
        began: when the request that made it was sent.
        ended: when a later state was acknowledged; None: it may still be there.
    """

    digest: str
    began: float
    ended: float | None = None


class SeenRead(msgspec.Struct, frozen=True):
    """A whole answer to a get."""

    key: str
    node: str
    digest: str
    began: float
    ended: float


class UnknownMove(msgspec.Struct, frozen=True):
    """A move whose outcome is not known: the file is at one of two keys, and not at both."""

    source: str
    target: str
    digest: str


class FileRecord:
    """The record of all clients; thread-safe."""

    def __init__(self) -> None:
        self._versions: dict[str, list[SeenVersion]] = defaultdict(lambda: [SeenVersion(ABSENT, 0.0)])
        self._reads: list[SeenRead] = []
        self._unknown: set[str] = set()
        self._unknown_moves: list[UnknownMove] = []
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.ids: set[str] = set()
        """Of the versions whose put was acknowledged."""

    def began(self, states: Mapping[str, str], at: float) -> None:
        """A request is sent that gives each of these keys such a state."""
        with self._lock:
            for key, digest in states.items():
                self._versions[key].append(SeenVersion(digest, at))

    def acknowledged(self, keys: Collection[str], at: float) -> None:
        """The request has done what it was to do: earlier states are over, and so are moves from or to these keys."""
        with self._lock:
            self._unknown_moves = [
                move for move in self._unknown_moves if not {move.source, move.target}.intersection(keys)
            ]
            for key in keys:
                for version in self._versions[key][:-1]:
                    version.ended = at if version.ended is None else version.ended

    def refused(self, keys: Iterable[str]) -> None:
        """The request has done nothing, by the answer to it."""
        with self._lock:
            for key in keys:
                self._versions[key].pop()

    def unknown(self, keys: Iterable[str], move: UnknownMove | None = None) -> None:
        """There was no answer: either state may be there from now on."""
        with self._lock:
            self._unknown.update(keys)
            if move is not None:
                self._unknown_moves.append(move)

    def read(self, seen: SeenRead) -> None:
        with self._lock:
            self._reads.append(seen)

    def count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1

    def is_unknown(self, key: str) -> bool:
        with self._lock:
            return key in self._unknown

    def all_keys(self) -> list[str]:
        with self._lock:
            return sorted(self._versions)

    def current(self, key: str) -> str:
        """The digest that a key, whose outcomes are all known, has now."""
        return self._versions[key][-1].digest

    def allowed(self, key: str) -> set[str]:
        """The digests that a key may have at the end."""
        with self._lock:
            return {version.digest for version in self._versions[key] if version.ended is None}

    def wrong_reads(self) -> list[str]:
        """Reads of bytes, or of no file, that were not there at any moment of the request."""
        return [
            f"node {read.node} gave {read.digest[:12] or 'no file'} for {read.key}, which then could have "
            f"{self._then(read)}"
            for read in self._reads
            if not any(version.digest == read.digest for version in self._possible(read))
        ]

    def wrong_ends(self, found: Mapping[str, str]) -> list[str]:
        """Keys that have other files at the end than they may have.

        Args:
            found: the digest of each file that is there, by key.
        """
        problems = []
        for key in sorted({*self._versions, *found}):
            digest, allowed = found.get(key, ABSENT), self.allowed(key)
            if digest not in allowed:
                words = sorted(one[:12] or "no file" for one in allowed)
                problems.append(f"{key} has {digest[:12] or 'no file'}; acknowledged, or without an answer: {words}")
        for move in self._unknown_moves:
            at_source = found.get(move.source, ABSENT) == move.digest
            at_target = found.get(move.target, ABSENT) == move.digest
            if at_source == at_target:
                places = "at both keys" if at_source else "at none of them"
                problems.append(f"the file that was to be moved from {move.source} to {move.target} is {places}")
        return problems

    def _possible(self, read: SeenRead) -> list[SeenVersion]:
        return [
            version
            for version in self._versions[read.key]
            if version.began <= read.ended and (version.ended is None or version.ended >= read.began)
        ]

    def _then(self, read: SeenRead) -> list[str]:
        return sorted({version.digest[:12] or "no file" for version in self._possible(read)})
