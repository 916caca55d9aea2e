"""Twelve thousand collected tests are no garbage: they are left out when Python looks for it.

A full look takes half a second with them, and tests order many: the simulation, and those that prove that something
leaves nothing behind.
"""

from __future__ import annotations

import gc

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
