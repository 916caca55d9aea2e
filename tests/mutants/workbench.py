"""A copy of a checkout in which mutants are tried, with an environment of its own.

The copy's interpreter finds the code of the copy, and all other packages where the checkout's environment has them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis")


class Workbench:
    """A copy of ``checkout`` in ``folder``, whose ``.venv`` has what the copy's tests need."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / ".venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        self.python = folder / ".venv" / "bin" / "python"
        shutil.copytree(checkout, folder, ignore=LEFT_OUT, symlinks=True)
        self._make_environment(checkout / ".venv")

    def run(self, *pytest_arguments: str, within: float) -> tuple[int | None, str]:
        """Run tests: pytest's status, None if they did not end in so many seconds; and what was printed."""
        command = [str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *pytest_arguments]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            try:
                printed, _ = running.communicate(timeout=within)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                return None, ""
            return running.returncode, printed

    def compile(self, paths: Sequence[Path]) -> None:
        """Compile files anew: what was changed twice within a second looks the same to a Python that keeps bytecode."""
        command = [str(self.python), "-m", "compileall", "-q", "-f", *map(str, paths)]
        subprocess.run(command, cwd=self.folder, check=True)

    def _make_environment(self, environment: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / ".venv")], check=True)
        [packages] = environment.glob("lib/python3.*/site-packages")
        (self.packages / "checkout.pth").write_text(f"{self.folder / 'src'}\n{packages}\n")
        for script in (environment / "bin").iterdir():
            copy = self.python.parent / script.name
            if script.is_file() and not copy.exists() and script.read_bytes().startswith(b"#!" + bytes(environment)):
                _, _, rest = script.read_bytes().partition(b"\n")
                copy.write_bytes(b"#!" + bytes(self.python) + b"\n" + rest)
                copy.chmod(0o755)
