"""Versions of peerd that are still to come: the sources as they are, with further revisions of the tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
REVISION = """
from alembic import op

from peerd.store.schema.migrate import run_statement

revision = "{number}"
down_revision = "{before}"


def upgrade() -> None:
    for statement in {statements}:
        run_statement(op.get_bind(), statement)
"""


@dataclass(frozen=True)
class FutureRevision:
    """A revision that is still to come."""

    number: str
    oldest: str
    statements: tuple[str, ...]

    def write(self, migrations: Path, *, before: str) -> None:
        """Add it to a folder of migrations, after another revision."""
        program = REVISION.format(number=self.number, before=before, statements=self.statements)
        (migrations / f"{self.number}_to_come.py").write_text(program)


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


def version_to_come(folder: Path, *changes: FutureRevision) -> Version:
    """The sources as they are, with further revisions of the tables."""
    package = folder / f"src-{changes[-1].number}" / "peerd"
    shutil.copytree(ROOT / "src" / "peerd", package)  # with bytecode, which is valid where nothing changes
    history = package / "store" / "schema" / "migrate.py"
    known, end, rest = history.read_text().partition('\n)\n"""All revisions')
    for change in changes:
        change.write(package / "store" / "migrations", before=known.split('Revision("')[-1].partition('"')[0])
        known += f'\n    Revision("{change.number}", oldest="{change.oldest}"),'
    history.write_text(known + end + rest)
    return Version(package.parent)
