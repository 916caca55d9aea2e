"""What [web.NAME] may name; everything else is refused with the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerd.config.settings import WebSettings
from peerd.entrypoints.import_string import InvalidEntry
from peerd.entrypoints.web import load_app
from tests.support.rows import rows

CODE = """
async def app(scope, receive, send): ...
def make(): return app
def broken(): raise OSError("no templates")
def half(scope): ...
class Site:
    async def __call__(self, scope, receive, send): ...
    nested = app
site = Site()
text = "no app"
"""


@pytest.fixture(autouse=True)
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site_of_the_test.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))


def load(name: str, *, factory: bool = False) -> object:
    return load_app("site", WebSettings(app=f"site_of_the_test:{name}", bind=(":0",), factory=factory))


@rows("name, factory", [("app", False), ("site", False), ("Site.nested", False), ("make", True)])
def test_every_form_of_an_asgi_app_is_accepted(name: str, factory: bool) -> None:  # noqa: FBT001 - of the table
    assert callable(load(name, factory=factory))


@rows("name, factory, problem", [
    ("nothing", False, "site_of_the_test has no nothing"),
    ("text", False, "is a str, not an ASGI app: it cannot be called"),
    ("text", True, "cannot be created: TypeError: 'str' object is not callable"),
    ("make", False, "it does not take scope, receive and send; if it creates the app, set factory = true"),
    ("half", False, "it does not take scope, receive and send"),
    ("broken", True, "cannot be created: OSError: no templates"),
])  # fmt: skip
def test_an_object_that_is_not_an_app_is_refused(name: str, factory: bool, problem: str) -> None:  # noqa: FBT001 - of the table
    with pytest.raises(InvalidEntry) as refused:
        load(name, factory=factory)
    assert str(refused.value).startswith(f"[web.site] site_of_the_test:{name}: ")
    assert problem in str(refused.value)
