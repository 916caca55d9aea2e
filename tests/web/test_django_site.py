"""The file that docs/access.md shows for a Django site, in a site of its own, with the real Django."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
SETTINGS = """
from django.http import HttpResponse
from django.urls import path

SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["site.example"]
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite"}}
USE_TZ = True
ROOT_URLCONF = __name__
PEERD_DATABASE_URL = "sqlite:///peerd.sqlite"
urlpatterns = [path("jobs", lambda request: HttpResponse("a page of Django"))]
"""
VISIT = """
import asyncio
import json
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import asgi
import httpx
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client as Browser

call_command("migrate", verbosity=0)


def log_in(name, **flags):
    browser = Browser()
    browser.force_login(User.objects.create_user(name, password="first", **flags))
    return {"cookie": f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"}


def change_password():
    ann = User.objects.get(username="ann")
    ann.set_password("second")
    ann.save()


ann = log_in("ann", is_staff=True)
root = log_in("root", is_staff=True, is_superuser=True)
customer = log_in("customer")


async def visit():
    transport = httpx.ASGITransport(asgi.application)
    async with httpx.AsyncClient(transport=transport, base_url="https://site.example") as http:

        async def rights(headers):
            return (await http.get("/jobs/api/v1/session", headers=headers)).json().get("rights")

        forged = {"cookie": f"{settings.SESSION_COOKIE_NAME}=forged"}
        texts = [(await http.get(path)).text for path in ("/jobs", "/jobs/health/ready")]
        found = [await rights(headers) for headers in ({}, forged, customer, ann, root)]
        crossed = await http.delete("/jobs/api/v1/tasks/1", headers=root | {"sec-fetch-site": "cross-site"})
        await asyncio.to_thread(change_password)
        return texts, found, crossed.status_code, await rights(ann)


print(json.dumps(asyncio.run(visit())))
"""


@pytest.mark.slow
def test_the_api_stands_beside_django_and_uses_its_login(tmp_path: Path) -> None:
    [example] = re.findall(r"^```python file=asgi.py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for name, text in (("asgi", example), ("settings", SETTINGS), ("visit", VISIT)):
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "visit.py"]
    visited = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert visited.returncode == 0, visited.stderr
    texts, rights, crossed, changed = json.loads(visited.stdout)
    assert texts == ["a page of Django", '{"status":"ok"}']
    of_root = ["admin", "enqueue", "operate", "read-files", "view", "write-files"]
    assert rights == [None, None, None, ["read-files", "view"], of_root]
    assert (crossed, changed) == (403, None)
