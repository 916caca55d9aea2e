"""Words that the code does not use any more, because each concept has one word: the one of docs/glossary.md."""

from __future__ import annotations

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
RETIRED: Final = {
    "addressee": "recipient",
    "agenda": "due maintenance",
    "beat": "heartbeat",
    "bell": "doorbell",
    "book": "schedule registry",
    "checkup": "diagnostics",
    "conclude": "record an outcome",
    "condensing": "log aggregation",
    "desk": "command context, alert dispatcher",
    "ear": "wake-up socket",
    "endings": "pending outcomes",
    "fate": "outcome",
    "give_back": "release",
    "given_back": "released",
    "guest": "caller's session",
    "hear": "receive",
    "heard": "received",
    "hearing": "wake-up",
    "holdings": "active claims",
    "intervene": "action",
    "keeper": "process manager",
    "letter": "envelope",
    "lonely": "quarantined",
    "mailroom": "message router",
    "nobody": "no recipient",
    "outlast": "retry",
    "pace": "prefetch",
    "porter": "debouncer",
    "presence": "registration",
    "pulse": "rescue guard",
    "resting": "pool liveness",
    "ringer": "notifier",
    "rooms": "capacity",
    "roster": "process table",
    "said": "output, report",
    "sealer": "signer",
    "sight": "snapshot",
    "somebody": "sender, user",
    "stand_in": "take over",
    "story": "exit facts",
    "stray": "unknown claim",
    "tell": "report, send",
    "told": "reported, sent",
    "traffic": "connection tracker",
    "who": "holder, sender",
    "whom": "recipient",
    "wish": "stop reason",
}
IN_PROSE: Final = (
    "agenda",
    "anybody",
    "everybody",
    "gave back",
    "given back",
    "gives back",
    "fate",
    "heard",
    "hears",
    "lonely",
    "nobody",
    "somebody",
    "told",
    "whom",
)


@cache
def _identifiers() -> Mapping[str, set[str]]:
    """Where each name is, and each string of one word: keys of JSON, tags, names of files."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "src").rglob("*.py"):
        for name in _identifiers_of(path):
            found[name].add(str(path.relative_to(ROOT)))
    return found


def _identifiers_of(path: Path) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME:
            yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", token.string).lower()
        elif token.type == tokenize.STRING and (word := re.fullmatch(r'f?"([a-z_]+)[.{]?.*"', token.string)):
            yield word[1]


@pytest.mark.parametrize(("word", "instead"), RETIRED.items())
def test_no_name_of_the_code_has_a_retired_word(word: str, instead: str) -> None:
    found = {name: paths for name, paths in _identifiers().items() if re.search(rf"(^|_){word}(_|$)", name)}
    assert not found, f"write {instead}"


def test_no_sentence_of_the_code_has_a_retired_word() -> None:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(rf"\b({'|'.join(IN_PROSE)})\b", line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
