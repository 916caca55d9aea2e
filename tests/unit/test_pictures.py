"""Pictures of the documentation load nothing: a page shows them without asking another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs").rglob("*.svg"))
NAMES_OF_FORMATS = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_loads_nothing(picture: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", picture.read_text(), flags=re.DOTALL)
    text = re.sub(r"<(text|title|desc)\b[^>]*>[^<]*</\1>", "", text)
    assert "@font-face" not in text
    assert "<script" not in text
    assert set(re.findall(r"[a-z]+://[^\s\"')<]+", text)) <= NAMES_OF_FORMATS
    assert re.findall(r"""(?:href=["']|url\(["']?)(?!#)[^"')]+""", text) == []
