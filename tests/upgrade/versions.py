"""Other versions of peerd: an earlier one out of the repository's history, and ones that are still to come."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EARLIER = "8322dbf25296bb934d97e0afb1a1747002b8fe99"
"""A commit whose code knows revision 0001 of the tables only, and nothing of upgrading node by node."""

REVISION = """
from alembic import op

from peerd.store.schema.migrate import run_script

revision = "{number}"
down_revision = "{before}"


def upgrade() -> None:
    run_script(op.get_bind(), "{number}")
"""


@dataclass(frozen=True)
class Version:
    """A version of peerd: the folder that Python shall find it in; None is the one that is under test."""

    sources: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.sources is None else {"PYTHONPATH": str(self.sources)}

    def call(self, *words: str, folder: Path, status: int | None = 0) -> str:
        """`peerd …` of this version; what it wrote. The test fails when it leaves with another status (None: any)."""
        ran = subprocess.run(
            [sys.executable, "-m", "peerd", *words],
            cwd=folder,
            env={**os.environ, "COLUMNS": "200", **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        log_text = ran.stdout + ran.stderr
        assert status in (ran.returncode, None), log_text
        return log_text


def earlier_version(folder: Path) -> Version:
    """The sources of the commit `EARLIER`. CI clones with the history, so there it may not be missing."""
    archive = folder / "earlier.tar"
    git = ["git", "-C", str(ROOT), "archive", "--format=tar", f"--output={archive}", EARLIER, "src"]
    made = subprocess.run(git, capture_output=True, text=True, check=False)
    if made.returncode:
        words = f"NOT TESTED: commit {EARLIER} cannot be had ({made.stderr.strip()}): clone with the history"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    target = folder / "earlier"
    target.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(target)], check=True)
    return Version(target / "src")


@dataclass(frozen=True)
class FutureRevision:
    """A revision that is still to come."""

    number: str
    oldest: str
    statements: Sequence[str]


def version_to_come(folder: Path, name: str, *changes: FutureRevision) -> Version:
    """The sources as they are, with further revisions of the tables."""
    sources = folder / name / "src"
    shutil.copytree(ROOT / "src" / "peerd", sources / "peerd")  # with bytecode, which is valid where nothing changes
    history = sources / "peerd" / "store" / "schema" / "revisions.py"
    text = history.read_text()
    before = text.split('Revision("')[-1].partition('"')[0]
    for change in changes:
        migrations = sources / "peerd" / "store" / "migrations"
        program = REVISION.format(number=change.number, before=before)
        (migrations / "versions" / f"{change.number}_to_come.py").write_text(program)
        for database in ("mysql", "postgresql", "sqlite"):
            script = migrations / "sql" / f"{change.number}_{database}.sql"
            script.write_text(";\n".join(change.statements) + ";\n")
        end = text.index("\n)\n", text.index("HISTORY: Final = ("))
        text = f'{text[:end]}\n    Revision("{change.number}", oldest="{change.oldest}"),{text[end:]}'
        before = change.number
    history.write_text(text)
    return Version(sources)
