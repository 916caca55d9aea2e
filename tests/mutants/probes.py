"""Which tests execute which mutants' lines, from one run of the tests on a copy of the code with a probe at each line.

A probe costs a microsecond, so that the run takes as long as it always does, and it also sees processes that a test
starts: they inherit the name of the test in their environment.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import Mutant

MODULE = '''"""Notes that a line was executed, and by which test."""
import os

_seen = set()
_file = None


def hit(number):
    global _file
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (number, test) in _seen:
        return
    _seen.add((number, test))
    try:
        if _file is None or _file[0] != os.getpid():
            _file = os.getpid(), os.open({hits!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.write(_file[1], f"{{number}}\\t{{test}}\\n".encode())
    except OSError:
        pass  # a process that may not write there
'''
NAME = "peerd_probe"


def insert(mutants: Sequence[Mutant], root: Path, packages: Path, hits: Path) -> None:
    """Put a probe before the line of each mutant into the code below ``root``, and their module into ``packages``."""
    places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        places[mutant.path].append((mutant.at, number))
    for path, found in places.items():
        lines = (root / path).read_text().splitlines(keepends=True)
        for at, number in sorted(found, reverse=True):
            line = lines[at - 1]
            indent = line[: len(line) - len(line.lstrip())]
            lines.insert(at - 1, f'{indent}__import__("{NAME}").hit({number})\n')
        (root / path).write_text("".join(lines))
    hits.touch()
    hits.chmod(0o666)
    (packages / f"{NAME}.py").write_text(MODULE.format(hits=str(hits)))


def read_hits(hits: Path) -> dict[int, list[str]]:
    """The tests that executed each mutant's line."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for line in hits.read_text().splitlines():
        number, _, test = line.partition("\t")
        if test:
            found[int(number)].add(test)
    return {number: sorted(tests) for number, tests in found.items()}


def save(mutants: Sequence[Mutant], file: Path) -> None:
    file.write_text(json.dumps([mutant.as_row() for mutant in mutants], indent=1))


def load(file: Path) -> list[Mutant]:
    return [Mutant(**row) for row in json.loads(file.read_text())]
