"""The two tiers of the suite, and what each folder of tests may cost in them.

`make test`      what would show first that something is broken: everything that is not marked `slow`
`make test-all`  everything, on every database
"""

from __future__ import annotations

import pytest

MINUTES = {True: 6, False: 30}
"""What a run may take on two idle cores: quick or not."""
FOLDERS = {
    # folder: processor seconds in make test, and in make test-all; those that wait longest come first
    "tests/faults": (10, 300), "tests/simulation": (15, 220), "tests/cluster": (130, 400), "tests/upgrade": (0, 40),
    "tests/demo": (0, 80), "tests/examples": (10, 90), "tests/pages": (30, 220), "tests/supervision": (60, 150),
    "tests/storage": (80, 250), "tests/video": (60, 450), "tests/model": (20, 220), "tests/work": (25, 100),
    "tests/cli": (45, 180), "tests/web": (35, 110), "tests/gateway": (30, 110), "tests/store": (90, 200),
    "tests/remote": (30, 60), "tests/fuzz": (15, 60), "tests/testing": (10, 20), "tests/bench": (0, 90),
    "tests/unit": (45, 90), "tests/packaging": (0, 90),
}  # fmt: skip


def is_quick(config: pytest.Config) -> bool:
    return "not slow" in str(config.option.markexpr)


def folder_of(nodeid: str) -> str:
    """The folder of tests that a test is in."""
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


def budget_of(folder: str, *, quick: bool) -> int | None:
    found = FOLDERS.get(folder)
    return None if found is None else found[0 if quick else 1]
