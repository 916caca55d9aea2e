from __future__ import annotations

import json

from peerd.cli.context import to_json


def test_json_cannot_control_a_terminal_and_keeps_its_value() -> None:
    value = {"\u202ekey": ["\x1b[2J \x9b \u2066 \u200f \u2028", "ä日 \ud800"[:-2]]}
    text = to_json(value)
    assert not {one for one in text if not one.isprintable()}
    assert "ä日" in text
    assert json.loads(text) == value
