"""Fixture for conftests: passwords are hashed and compared with as little work as the algorithm allows.

A real comparison takes a fifth of a second of a processor, and tests log in often.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import argon2
import pytest

from peerd.operate import passwords

QUICK = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@cache
def quick_hash(password: str) -> str:
    return QUICK.hash(passwords.normalized(password))


@pytest.fixture(scope="module", autouse=True)
def quick_passwords() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passwords, "_hasher", lambda: QUICK)
        yield
