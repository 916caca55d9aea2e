"""Commands with ``--server``: they print what they print with ``--database``, and refuse what is of this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from peerd import Client
from peerd.cli.app import ACCESS, COMMANDS, WORK, load_command
from peerd.store.processes import register_process
from peerd.testing import eventually
from tests.cli.conftest import Peerd
from tests.remote.conftest import ACCESS_KEY, PASSWORD, UPLOAD, Copies, ServedApp, answering_node
from tests.remote.test_client import lose_answers
from tests.unit.operate.claiming_process import ClaimingProcess

NOT_ON_A_SERVER = {"ring", "alerts test"}
NEEDS_NODES = {"files put", "files get"}
"""`tests/storage/test_commands.py` runs them on a server."""
NEEDS_A_TERMINAL = {"top"}
"""`tests/cli/top/test_top_terminal.py` runs it on a server."""
ONE_WORD = {"enqueue", "stats", "errors", "audit", "reload", "scale"}
LINES = """
audit --limit 2 --json; enqueue video transcode {body} --priority 20 --start-in 10m --json;
enqueue mail --text hello --unique once; enqueue video --node nowhere;
tasks list --status dead --search disk --where priority>=20; tasks list --queue video --limit 2 --json;
tasks show 1 2 3 4 9; tasks watch 1 3 --until-done; tasks logs 1; tasks stack 4; bulk list;
bulk show 1; bulk show 99; bulk pause 1; bulk resume 1; bulk cancel 1; bulk watch 2; stats --by handler;
stats --by handler --against 1d; errors --since 1h --queue mail; tasks bury 5; tasks kick 8;
tasks kick --queue mail --yes; tasks snooze 5 --for 1h; tasks move 5 --to video-1; tasks move 5 --to-queue other;
tasks change 9 --priority 7 --body [1]; tasks cancel 6 --reason späte-Einsicht; tasks cancel 1 99; tasks retry 3;
tasks retry --status canceled --yes; tasks retry --status dead --yes --no-wait; tasks delete 7;
queues list; queues why video;
queues pause video --for 1h; queues resume mail viedo; limits list; limits set video --running 5;
limits remove mail --each-key; nodes list; nodes show video-1; nodes show old --timeout 0.2; nodes drain video-1;
nodes undrain video-1; nodes forget old; nodes forget video-1; schedules list; schedules show refresh;
schedules runs refresh --json; schedules run refresh b --no-wait; schedules disable refresh nightly;
schedules enable refresh; schedules create tidy --queue jobs --interval 10m; schedules delete refresh;
reload video --node video-1; reload --node old --no-wait; scale video 3 --node video-1; users list;
users add bo --role operator --password-stdin; users role ann --role viewer; users password ann --password-stdin;
users disable ann; users remove nobody; tokens list; tokens create ci --right view --queue video --expires 90d;
tokens revoke 2; alerts list --on --json; files ls; files ls films/2026/; files stat films/2026/b.mov films/c.mov;
files mv films/c.mov films/2026/; files verify films/2026/c.mov; files at-risk; files du; files fsck films --verify;
files uploads list films/2026/; files uploads abort {upload}; files rm films/2026/b.mov;
files rm films/2026/ --recursive --yes --json; files drain 1; files undrain 1;
files watch --until-settled --json --every x; files keys list; files keys revoke {key}; files buckets list;
files keys create laptop --rights read --scope films --scope team-*/2026/ --expires 90d;
files buckets create music --class safe --quota 500GB; files buckets change films --no-quota;
files buckets delete empty; files classes list; files classes set fast --copies 1; files classes remove unused;
files disks list; files rebalance --dry-run; files disks readonly 1; files disks activate 2;
files disks lost 1 --yes; files disks remove 1
"""
"""Commands that both do; the audit log is read first, since its entries have the actor."""
COMMANDS_TRIED = [line.strip() for line in LINES.format(upload=UPLOAD, key=ACCESS_KEY, body="{}").split(";")]
QUICK = ("enqueue video", "tasks list", "tasks show", "tasks retry", "queues pause", "reload video", "files ls")


def run(peerd: Peerd, words: list[str]) -> tuple[Any, ...]:
    """The status and the output, without what depends on the moment."""
    answer = peerd(*words, status=None, stdin=f"{PASSWORD}\n")
    return answer.status, *(_timeless(text) for text in (answer.out, answer.err))


def _timeless(text: str) -> str:
    text = re.sub(r"peerd_\S+|(?<![\w-])[\w-]{43}(?![\w-])", "SECRET", text)
    text = re.sub(r"PEERD[A-Z2-7]{15}", "KEY", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00| UTC)?|\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r'(?<="seconds":)[\d.]+|\d+\.\d{3,}', "FIGURE", text)
    text = re.sub(r"\d+ (ms|s|min|h)\b", "AGE", re.sub(r" +", " ", text))
    return re.sub(r" +$", "", text, flags=re.MULTILINE)  # a column is as wide as its times


@pytest.fixture(autouse=True)
def _with_token(token: str, peerd: Peerd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands present the token, after `peerd` has cleared the environment."""
    monkeypatch.setenv("PEERD_TOKEN", token)


def differences(peerd: Peerd, copies: Copies, served_app: ServedApp, lines: Sequence[str]) -> list[Any]:
    """The commands that print something else on a server than on an equal database."""
    local, shown = copies.client(), copies.client()
    served_app.show(shown)
    by_database = ["--database", local.database.url.render_as_string()]
    found = []
    with answering_node(local), answering_node(shown):
        for line in lines:
            expected = run(peerd, [*line.split(), *by_database])
            by_server = run(peerd, [*line.split(), "--server", served_app.address])
            if by_server != expected:
                found.append((line, by_server, expected))
    return found


def test_some_commands_do_the_same_on_a_server(peerd: Peerd, copies: Copies, served_app: ServedApp) -> None:
    lines = [line for line in COMMANDS_TRIED if line.startswith(QUICK)]
    assert differences(peerd, copies, served_app, lines) == []


@pytest.mark.slow
def test_every_command_does_the_same_on_a_server(peerd: Peerd, copies: Copies, served_app: ServedApp) -> None:
    assert differences(peerd, copies, served_app, COMMANDS_TRIED) == []


def test_a_bulk_action_is_left_to_the_managers_of_the_server(
    peerd: Peerd, remote: Client, database_client: Client, served_app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = ClaimingProcess(database_client.database)
    of_process: dict[str, Any] = {"kind": "agent", "slot": "agent-1", "role": "manager", "pid": 7}
    database_client.database.run(register_process, node_id=holder.node_id, incarnation=holder.incarnation, **of_process)
    assert remote.bulk.has_manager()
    made = lose_answers(monkeypatch, lambda _: False)

    def paths() -> list[str]:
        return [one.target.rpartition("/")[2] for one in made]

    def carry_out_later() -> None:
        eventually(lambda: paths().count("bulk.get") > 1)
        while not database_client.bulk.carry_out(3).has_ended:
            pass

    thread = Thread(target=carry_out_later)
    thread.start()
    words = "tasks", "retry", "--status", "dead", "--yes", "--server", served_app.address
    assert "retried 1 task" in peerd(*words).out
    thread.join()
    assert "bulk.carry_out" not in paths()


def test_a_token_of_some_queues_shows_a_node_without_its_live_state(
    peerd: Peerd, copies: Copies, served_app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = copies.client()
    served_app.show(client)
    monkeypatch.setenv("PEERD_TOKEN", client.tokens.create("mail", ["view"], queues=["mail"]).secret)
    shown = peerd("nodes", "show", "video-1", "--json", "--server", served_app.address, status=1).json
    assert (shown["name"], shown["live"]) == ("video-1", None)
    assert "not about the queues that the actor may see" in shown["problem"]


def test_every_command_for_the_clusters_work_is_among_them() -> None:
    panels = (WORK, ACCESS)
    names = [name for name, (_, panel, _) in COMMANDS.items() if panel in panels and name not in NOT_ON_A_SERVER]
    wanted = {"reload", "scale"}
    for name in names:
        group = getattr(load_command(name), "commands", None)
        wanted |= {name} if group is None else {f"{name} {one}" for one in group}
    found = {" ".join(words[: 1 if words[0] in ONE_WORD else 2]) for words in map(str.split, COMMANDS_TRIED)}
    assert found == wanted - NOT_ON_A_SERVER - NEEDS_NODES - NEEDS_A_TERMINAL


def test_a_command_about_this_machine_refuses_a_server(peerd: Peerd) -> None:
    lines = "up, start, stop, restart, reload, status, logs, init, check, migrate, systemd, demo, ring, scale video 2, "
    lines += "alerts test, files disks add ., files disks add --object-store archive"
    for line in lines.split(", "):
        refused = peerd(*line.split(), "--server", "http://127.0.0.1:1", status=2).err
        assert "works on this machine and its peerd.toml, not on a server" in refused, line


def test_the_environment_names_a_server_and_its_token(
    peerd: Peerd, copies: Copies, served_app: ServedApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str
) -> None:
    made = lose_answers(monkeypatch, lambda _: False)
    served_app.show(copies.client())
    monkeypatch.setenv("PEERD_SERVER", served_app.address)
    monkeypatch.delenv("PEERD_TOKEN")
    (tmp_path / "token").write_text(f"{token}\n")
    (tmp_path / "other").write_text("peerd_other\n")
    refusal = "refuses the request (401"
    assert refusal in peerd("queues", "pause", "mail", status=1).err
    monkeypatch.setenv("PEERD_TOKEN_FILE", str(tmp_path / "token"))
    peerd("queues", "pause", "mail")
    monkeypatch.setenv("PEERD_TOKEN", "peerd_third")
    assert refusal in peerd("queues", "pause", "mail", status=1).err
    assert refusal in peerd("queues", "pause", "mail", "--token-file", str(tmp_path / "other"), status=1).err
    sent = len(made)
    tokens = list(dict.fromkeys(one.headers.get("authorization") for one in made))
    assert tokens == [None, f"Bearer {token}", "Bearer peerd_third", "Bearer peerd_other"]
    assert "transcode" in peerd("tasks", "list", "--database", copies.url()).out
    (tmp_path / "peerd.toml").write_text('[node]\nname = "here"\n')
    peerd("check", "--config", "peerd.toml")
    peerd("migrate")
    assert len(made) == sent, "an option is stronger than the environment, which does not concern this machine"


def test_a_wrong_server_or_token_is_refused_in_a_sentence(
    peerd: Peerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_text("\n")
    monkeypatch.setenv("PEERD_SERVER", "mysql://a/b")
    for words, status, said in (
        ("", 2, "PEERD_SERVER: this is not the URL of a server"),
        ("--server sqlite:///a", 2, "--server: this is not the URL of a server"),
        ("--server http://a --database sqlite:///a", 2, "not both"),
        ("--server http://127.0.0.1:1", 1, "the server http://127.0.0.1:1 does not answer"),
        ("--server http://127.0.0.1:1 --token-file nowhere", 1, "no such file"),
        ("--server http://127.0.0.1:1 --token-file empty", 2, "holds no token"),
    ):
        assert said in peerd("tasks", "list", *words.split(), status=status).err, words
