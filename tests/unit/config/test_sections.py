"""[web.NAME], [commands.NAME] and [alerts.NAME]: valid values, and the errors of all others."""

from __future__ import annotations

from pathlib import Path

from peerd.config import check, load
from tests.unit.config.helpers import EMPTY, Write, problems


def test_a_command_is_a_list_and_its_name_its_own(write: Write) -> None:
    path = write(
        """
        [workers.video]
        tasks = "studio:video"
        [commands.video]
        command = "ssh -N storage"
        [commands.agent]
        command = []
        [commands.tunnel]
        command = ["ssh", "-N", "storage"]
        """,
    )
    assert problems(path) == [
        "peerd.toml:3: commands.video: [workers.video] has this name; choose another name",
        (
            "peerd.toml:4: commands.video.command: is a text; "
            "write the program and its arguments as a list, no shell reads them"
        ),
        "peerd.toml:5: commands.agent: is the name of a process of peerd's own; choose another name",
        "peerd.toml:6: commands.agent.command: must not be empty",
    ]


def test_an_unknown_key_of_any_named_section_is_reported_with_the_key_that_is_meant(write: Write) -> None:
    path = write(
        """
        [commands.tunnel]
        comand = ["ssh"]
        [web.site]
        bakclog = 1
        [alerts.chat]
        lgo = true
        [schedules.refresh]
        intervall = "1s"
        """
    )
    unknown = [problem for problem in problems(path) if "unknown key" in problem]
    assert unknown == [
        "peerd.toml:2: commands.tunnel.comand: unknown key; did you mean 'command'?",
        "peerd.toml:4: web.site.bakclog: unknown key; did you mean 'backlog'?",
        "peerd.toml:6: alerts.chat.lgo: unknown key; did you mean 'log'?",
        "peerd.toml:8: schedules.refresh.intervall: unknown key; did you mean 'interval'?",
    ]


def test_a_header_that_names_the_user_is_taken_from_known_proxies_only(write: Write) -> None:
    path = write(
        """
        [web.dashboard]
        app = "peerd.web:app"
        bind = "127.0.0.1:8080"
        forwarded_allow_ips = "*"
        [access]
        proxy_user_header = "X-Remote-User"
        """
    )
    assert problems(path) == [
        (
            "peerd.toml:4: web.dashboard.forwarded_allow_ips: every program that connects could name any user in "
            "[access] proxy_user_header; give the addresses of the proxies"
        ),
    ]


def test_every_error_of_a_web_section_is_reported(write: Write) -> None:
    path = write(
        """
        [workers.video]
        tasks = "studio:video"
        [web.video]
        app = "studio.site"
        bind = ["8080", ":80", ":80"]
        unix_mode = 660
        hang_after = "never"
        [web.site]
        app = "studio.site:app"
        bind = ["[::1]:80", "unix:site.sock"]
        unix_mode = "rw"
        """,
    )
    assert problems(path) == [
        "peerd.toml:3: web.video: [workers.video] has this name; choose another name",
        (
            "peerd.toml:4: web.video.app: 'studio.site' names no object: write 'module:name', "
            "for example 'studio.jobs:video'"
        ),
        (
            "peerd.toml:5: web.video.bind: '8080' names no port; write \"127.0.0.1:8080\", "
            '":8080" for every IPv4 address, "[::]:8080" for every IPv6 address, "unix:/path", or "systemd:NAME"'
        ),
        "peerd.toml:6: web.video.unix_mode: is no file mode: write '0660', or 0o660",
        (
            "peerd.toml:7: web.video.hang_after: 'never' is not a duration: give seconds, or text such as "
            "'500ms', '10s', '1h30m', '3d'"
        ),
        ("peerd.toml:11: web.site.unix_mode: 'rw' is no file mode: write it as chmod reads it, for example '0660'"),
    ]


def test_a_web_section_is_read_with_absolute_paths_for_its_sockets(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = ["unix:run/site.sock", ":8080"]
        unix_mode = "0660"
        hang_after = "none"
        """,
    )
    web = load(path, EMPTY).web["site"]
    assert web.bind == (f"unix:{path.parent}/run/site.sock", ":8080")
    assert (web.unix_mode, web.hang_after) == (0o660, None)


def test_two_web_sections_do_not_listen_on_one_address(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = "[::1]:80"
        [web.api]
        app = "studio.api:app"
        bind = ["[0::1]:80", ":80"]
        """,
    )
    assert problems(path) == ["peerd.toml:6: web.api.bind: [web.site] listens on [0::1]:80 too; choose another"]


def test_folders_of_previews_are_absolute_and_a_unix_socket_whose_path_is_then_too_long_is_refused(
    write: Write,
) -> None:
    path = write('[access]\npreview_folders = ["out", "/srv/posters", "~/films"]')
    home = Path("~/films").expanduser()
    assert load(path, {}).access.preview_folders == (path.parent / "out", Path("/srv/posters"), home)
    [problem] = problems(write(f'[web.site]\napp = "studio.site:app"\nbind = "unix:{"x" * 100}"\n'))
    assert "web.site.bind: the path of a unix socket has at most 107 bytes" in problem


def test_web_settings_that_cut_off_or_share_connections_are_a_warning(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = ":80"
        keep_alive = "75s"
        reuse_port = true
        """,
    )
    found = check(path, EMPTY)
    assert [(warning.line, warning.key) for warning in found.warnings] == [
        (4, "web.site.keep_alive"),
        (5, "web.site.reuse_port"),
    ]


def test_a_hook_has_exactly_one_channel_and_valid_settings(write: Write) -> None:
    path = write(
        """
        [alerts.both]
        webhook = "ftp://chat.example"
        log = true
        [alerts.none]
        on = ["dead-tasks", "bad-weather"]
        at_most = "often"
        [alerts.office.mail]
        server = "mail.example:smtp"
        sneder = "peerd@studio.example"
        sender = "peerd@studio.example"
        to = "ops@studio.example"
        """,
    )
    found = problems(path)
    assert [line for line in found if "must be" not in line] == [
        "peerd.toml:1: alerts.both: has webhook and log; give exactly one of webhook, mail, command and log = true",
        "peerd.toml:4: alerts.none: has no way out; give exactly one of webhook, mail, command and log = true",
        "peerd.toml:6: alerts.none.at_most: 'often' is no rate: write a number and a time, such as '1 per 5m'",
        "peerd.toml:8: alerts.office.mail.server: 'mail.example:smtp' is no mail server: write 'host' or 'host:port'",
        "peerd.toml:9: alerts.office.mail.sneder: unknown key; did you mean 'sender'?",
    ]
    assert "peerd.toml:2: alerts.both.webhook: must be an address that begins with http:// or https://" in found
    assert any(line.startswith("peerd.toml:5: alerts.none.on: must be 'crash-loop', ") for line in found)


def test_the_password_of_a_mail_server_lies_beside_the_configuration(write: Write) -> None:
    mail = """
        [alerts.office.mail]
        server = "mail.example"
        sender = "peerd@studio.example"
        to = ["ops@studio.example"]
        user = "peerd"
        password_file = "mail.password"
        """
    path = write(mail)
    missing = f"peerd.toml:6: alerts.office.mail.password_file: {path.parent}/mail.password: there is no such file"
    assert problems(path) == [f"{missing}; write the password there"]
    (path.parent / "mail.password").write_text("secret")
    office = load(path, EMPTY).alerts["office"].mail
    assert office is not None
    assert office.password_file == path.parent / "mail.password"
    assert office.host_and_port == ("mail.example", 25)
