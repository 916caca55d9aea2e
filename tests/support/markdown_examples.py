"""Run the examples in our Markdown pages: each block that begins with ```python run is a test.

The blocks of a page share their names, in order, and run in one temporary folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_BLOCK = re.compile(r"^```python run\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".md":
        return MarkdownPage.from_parent(parent, path=file_path)
    return None


class MarkdownPage(pytest.File):
    folder: Path | None = None

    def collect(self) -> Iterator[pytest.Item]:
        text = self.path.read_text()
        names: dict[str, Any] = {"__name__": self.path.stem}
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start(1)) + 1
            yield MarkdownExample.from_parent(self, name=f"line {line}", line=line, source=block[1], names=names)


class MarkdownExample(pytest.Item):
    def __init__(self, *, line: int, source: str, names: dict[str, Any], **keywords: Any) -> None:
        super().__init__(**keywords)
        self.line, self.source, self.names = line, source, names

    def runtest(self) -> None:
        assert isinstance(self.parent, MarkdownPage)
        self.parent.folder = self.parent.folder or self.config._tmp_path_factory.mktemp("example")  # type: ignore[attr-defined]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.parent.folder)
            code = compile("\n" * (self.line - 1) + self.source, str(self.path), "exec", dont_inherit=True)
            exec(code, self.names)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line - 1, self.name
