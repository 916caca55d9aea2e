from __future__ import annotations

from pathlib import Path

from peerd.config import check, load
from tests.unit.config.helpers import EMPTY, Write, problems


def test_a_web_section_is_read_with_absolute_paths_for_its_sockets(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = ["unix:run/site.sock", ":8080"]
        unix_mode = "0660"
        hang_after = "none"
        """
    )
    web = load(path, EMPTY).web["site"]
    assert web.bind == (f"unix:{path.parent}/run/site.sock", ":8080")
    assert (web.unix_mode, web.hang_after) == (0o660, None)


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
        """
    )
    found = check(path, EMPTY)
    assert [(warning.line, warning.key) for warning in found.warnings] == [
        (4, "web.site.keep_alive"),
        (5, "web.site.reuse_port"),
    ]


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
