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
    "tests/faults": (10, 240), "tests/simulation": (15, 200), "tests/cluster": (150, 700), "tests/upgrade": (0, 60),
    "tests/demo": (0, 60), "tests/examples": (10, 80), "tests/pages": (40, 250), "tests/supervision": (50, 150),
    "tests/storage": (80, 350), "tests/video": (30, 150), "tests/model": (20, 120), "tests/work": (35, 120),
    "tests/cli": (35, 150), "tests/web": (35, 120), "tests/gateway": (35, 120), "tests/store": (90, 300),
    "tests/remote": (15, 60), "tests/fuzz": (10, 60), "tests/testing": (10, 20), "tests/bench": (0, 40),
    "tests/unit": (45, 80), "tests/packaging": (0, 90),
}  # fmt: skip


def is_quick(config: pytest.Config) -> bool:
    return "not slow" in str(config.option.markexpr)


def folder_of(nodeid: str) -> str:
    """The folder of tests that a test is in."""
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


def budget_of(folder: str, *, quick: bool) -> int | None:
    found = FOLDERS.get(folder)
    return None if found is None else found[0 if quick else 1]
