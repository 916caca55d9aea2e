"""peerd.toml and the environment: whatever they hold, there are settings, or a list of problems with clear words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from peerd.config import Settings, check, settings
from peerd.config.section import Section
from peerd.config.source import setting_variables
from tests.fuzz import values
from tests.fuzz.conftest import searched

SECTIONS: Mapping[str, type[Section]] = {
    "node": settings.NodeSettings, "database": settings.DatabaseSettings, "manager": settings.ManagerSettings,
    "statistics": settings.StatisticsSettings, "logging": settings.LoggingSettings,
    "workers.video": settings.WorkerSettings, "schedules.refresh": settings.ScheduleSettings,
    "web.site": settings.WebSettings, "gateway.queue": settings.GatewaySettings, "queues.mails": settings.QueueSettings,
}  # fmt: skip
KEYS = [(section, key) for section, model in SECTIONS.items() for key in model.known_keys()]
HOSTILE: tuple[Any, ...] = (
    *values.WORDS, *values.NUMBERS[:-1], *values.FLOATS, True, False, [], [[]], ["a", 1], [""], {}, {"a": {"a": {}}},
    "sqlite://", "sqlite:///", "sqlite:////", "mysql://", "mysql://:::/", "mysql://u:p@[::1/x", "sqlite:///\x00",
    "postgresql://h:99999999/x", "mysql://u:p@h:port/x", "postgresql://h/x?a=%zz&a", "x" * 5000, "~root/x",
    "~nobody-there/x", "/dev/null", "/", "a:b", "a.b:c", "1e400", "0.0000000001", "1e-400s", "1" * 400, "1" * 400 + "s",
    ":80", "[::1]:80", "unix:/run/a", "systemd:a", "unix:\x00", ":65536", "0888", "none",
    "1" * 5000, "9" * 400 + "GB", "-0", "٣s", "1_000", "0x10",
)  # fmt: skip


def toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan" if math.isnan(value) else repr(value))
        case str():
            return json.dumps(value)
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"
        case _:
            return str(value)


def words_of(text: str | bytes, folder: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """What is said of a file; that it can be said at all, and shown, is what is tested."""
    file = folder / "peerd.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    found = check(file, environment or {})
    said = [str(problem) for problem in (*found.problems, *found.warnings)]
    for one in said:
        one.encode()
        assert len(one) < 1500, one[:200]
    assert (found.settings is None) == bool(found.problems)
    if found.settings is not None:
        _are_sound(found.settings)
    return said


def _are_sound(found: Settings) -> None:
    """Accepted settings are numbers that a timer, an integer column and a process limit take."""
    for section in (found.node, found.database, found.manager, *found.workers.values()):
        for key, value in structs.asdict(section).items():
            assert not isinstance(value, float) or 0 <= value < 1e10, key
            assert not isinstance(value, int) or value < 2**63, key


@pytest.mark.slow
@pytest.mark.parametrize("section", [*SECTIONS, "environment"])
def test_every_key_and_variable_with_every_hostile_value_is_accepted_or_refused(section: str, tmp_path: Path) -> None:
    for key in SECTIONS[section].known_keys() if section in SECTIONS else ():
        needed = "" if section != "workers.video" or key in {"tasks", "worker"} else 'tasks = "a:b"\n'
        for value in HOSTILE:
            said = words_of(f"[{section}]\n{needed}{key} = {toml(value)}\n", tmp_path)
            assert all(":" in one for one in said), (key, value)
    for variable in sorted(setting_variables()) if section == "environment" else ():
        for value in HOSTILE:
            if isinstance(value, str) and "\x00" not in value:
                words_of("", tmp_path, {variable: value})


def documents() -> st.SearchStrategy[str]:
    keys = st.sampled_from([key for _, key in KEYS]) | values.words
    value = (st.sampled_from(HOSTILE) | values.json).map(toml)
    line = st.tuples(keys.map(lambda key: key if key.isidentifier() else json.dumps(key)), value).map(" = ".join)
    table = st.sampled_from([*SECTIONS, "workers", "workers.a.options", "workers.'a b'", "web", "agent", "", "nodes"])
    header = table.map(lambda name: f"[{name}]") | table.map(lambda name: f"[[{name}]]")
    pieces = st.lists(line | header | st.sampled_from(["", "#", '"""', "'''", "[", "]", "{", "\\", "\r", "\x00", "="]))
    return pieces.map("\n".join)


KNOWN = (
    "[[workers]]\n", "workers = 1\n", "[workers]\nvideo = 1\n", "[node]\nname = 'a'\nname = 'b'\n",
    "[database]\nurl = '''\n", f"a = {'[' * 5000}", f"a = {'[' * 5000}{']' * 5000}", f"{'a.' * 5000}a = 1",
    f"a = {'{a = ' * 3000}1{'}' * 3000}", f"n = {'9' * 5000}", f"[node]\ngrace = {'9' * 5000}",
    f"{'#' * 10**6}\n{' ' * 10**6}", 'x = """' + "\\" * 200_000 + '"""',
    "[workers.video]\ntasks = 'a:b'\noptions = " + '"' * 6 + "\n[workers.video.options]", b"\xff\xfe[\x00n\x00",
    b"\xef\xbb\xbf[node]\n", b"\x00" * 1000, "[workers.a]\ntasks = [" + '"a:b", ' * 20_000 + "]\n",
    f"[node]\nzone = '{'z' * 2_000_000}'\n",
)  # fmt: skip
"""What once had no answer, or was long in getting it."""


@searched(120)
@given(text=documents() | st.text(max_size=200) | st.binary(max_size=300))
def test_whatever_a_file_says_is_settings_or_clear_problems(text: str | bytes, tmp_path: Path) -> None:
    words_of(text, tmp_path)


@pytest.mark.timeout(60)
def test_what_a_file_once_said_or_what_is_no_file_is_settings_or_clear_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in KNOWN:
        words_of(text, tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in ("/dev/zero", "/proc/self/mem", ".", "a\0b", "x" * 300, "~nobody-there/peerd.toml"):
        assert check(Path(path), {}).problems, path
