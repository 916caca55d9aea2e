from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

from msgspec import structs

from peerd.config import Settings, check
from peerd.config.section import Section
from peerd.config.settings import MailSettings, ObjectStoreSettings
from peerd.config.source import setting_variables
from peerd.domain.schedule import RunStatus
from peerd.domain.units import parse_duration, parse_size
from peerd.runtime.metrics.families import FAMILIES, MetricKind
from tests.faults.checker import RULE_NAMES

ROOT = Path(__file__).parents[2]
WORDS_FOR_DEFAULTS = {
    "none": ("allowed_hosts", "preview_folders", "mask", "disks", "object_stores", "prefix", "root_path",
             "forwarded_allow_ips"),
    "": ("bucket", "app", "web.NAME bind", "commands.NAME command", "tasks", "worker", "server", "sender", "to"),
    "the node's": ("workers.NAME grace", "commands.NAME grace", "web.NAME grace", "gateway.NAME grace"),
    "the host name": ("name",), "`.peerd/<name>`": ("run_directory",), "two heartbeats": ("inactive_after",),
    "those that the code names": ("queues",), "`127.0.0.1:11300`": ("gateway.NAME bind",),
    '`["beanstalk", "json"]`': ("protocols",), '`["127.0.0.1:7480"]`': ("storage bind",),
    "every address": ("cluster bind",),
    "`{}`": ("options", "commands.NAME environment"), "all": ("on",),
}  # fmt: skip
SIZES = ("max_buffered_total", "max_head", "max_message", "max_size", "capacity")


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def chapter(name: str, title: str) -> str:
    return page(name).partition(f"\n## {title}")[2].partition("\n## ")[0]


def sections() -> Iterator[tuple[str, type[Section]]]:
    for name, hint in get_type_hints(Settings).items():
        for model, title in ((hint, name), *((one, f"{name}.NAME") for one in get_args(hint))):
            if isinstance(model, type) and issubclass(model, Section):
                yield title, model
    yield from (("alerts.NAME.mail", MailSettings), ("storage.object_stores.NAME", ObjectStoreSettings))


def written(key: str, default: object, words: str) -> bool:
    """Whether the page's words are the default of the key."""
    text = words.strip("`")
    if key in SIZES:
        return parse_size(text) == default
    if isinstance(default, float):
        return parse_duration(text) == default
    if key == "unix_mode":
        return text == f'"{default:04o}"'
    return words == "none" if default is None else text.lower() == str(default).lower()


def test_every_key_is_on_the_page_of_the_configuration_with_its_default() -> None:
    by_key = {key: words for words, keys in WORDS_FOR_DEFAULTS.items() for key in keys}
    wrong = []
    for section, model in sections():
        rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", chapter("configuration", f"`[{section}]`"), re.MULTILINE))
        assert sorted(rows) == sorted(model.known_keys()), section
        defaults = {field.name: field.default for field in structs.fields(model)}
        for key, words in rows.items():
            expected = by_key.get(f"{section} {key}", by_key.get(key))
            if words != expected if expected is not None else not written(key, defaults[key], words):
                wrong.append((section, key, words, defaults[key]))
    assert wrong == []
    assert len(list(sections())) == len(re.findall(r"^## `\[", page("configuration"), re.MULTILINE))
    named = set(re.findall(r"`(PEERD_[A-Z_]+)`", page("configuration"))) - {"PEERD_CONFIG"}
    assert named <= set(setting_variables())


def test_the_examples_are_configurations(tmp_path: Path) -> None:
    (tmp_path / "database.password").write_text("secret")
    found = {}
    for name, blocks in (("configuration", 1), ("schedules", 99)):
        examples = re.findall(r"```toml\n(.*?)```", page(name), re.DOTALL)[:blocks]
        (tmp_path / "peerd.toml").write_text("\n".join(examples))
        found[name] = check(tmp_path / "peerd.toml", {})
        assert found[name].problems == [], name
    configuration, schedules = (one.settings for one in found.values())
    assert configuration is not None
    assert configuration.workers["cleanup"].sleep == 60
    assert schedules is not None
    assert list(schedules.schedules) == ["refresh", "report", "probe", "tide"]


def test_every_status_of_a_run_and_every_metric_of_a_node_is_explained() -> None:
    first_cells = "".join(re.findall(r"^\| (`.*?) \| ", chapter("schedules", "Outcomes"), re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", first_cells)) == set(RunStatus)
    rows = re.findall(r"^\| `(peerd_[a-z_]+)` \| (\w+) \|([^|]*)\|", page("monitoring"), re.MULTILINE)
    kinds = {MetricKind.LARGEST: "gauge"}
    assert {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == {
        name: (kinds.get(family.kind, family.kind.value), family.labels) for name, family in FAMILIES.items()
    }


def test_the_rules_of_the_checker_and_of_the_simulation_are_named() -> None:
    rows = [line.split("|") for line in chapter("reliability", "The rules by name").splitlines() if line[:2] == "| "]
    named = [{name for row in rows for name in re.findall(r"`([^`]+)`", row[column])} for column in (2, 3)]
    sources = "".join(source.read_text() for source in (ROOT / "tests" / "simulation").glob("*.py"))
    assert named == [set(RULE_NAMES), set(re.findall(r'(?:InvariantViolation\(|forbid\(.+,)\s*"([^"]+)",', sources))]
