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
    user = User.objects.create_user(name, password="first", **flags)
    browser = Browser()
    browser.force_login(user)
    return user, {"cookie": f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"}


def change_password(user):
    user.set_password("second")
    user.save()


ann, anns = log_in("ann", is_staff=True)
_, roots = log_in("root", is_staff=True, is_superuser=True)
_, customers = log_in("customer")
_, formers = log_in("former", is_staff=True, is_active=False)


async def visit():
    transport = httpx.ASGITransport(asgi.application)
    async with httpx.AsyncClient(transport=transport, base_url="https://site.example") as http:

        async def status(headers, path="session"):
            return (await http.get(f"/jobs/api/v1/{path}", headers=headers)).status_code

        async def rights(headers):
            return (await http.get("/jobs/api/v1/session", headers=headers)).json()["rights"]

        found = {
            "page": (await http.get("/jobs")).text,
            "health": (await http.get("/jobs/health/ready")).status_code,
            "nobody": [await status({}), await status({"cookie": f"{settings.SESSION_COOKIE_NAME}=forged"})],
            "customer": await status(customers),
            "former": await status(formers),
            "ann": await rights(anns),
            "root": await rights(roots),
            "users": [await status(anns, "users"), await status(roots, "users")],
        }
        crossed = await http.delete("/jobs/api/v1/tasks/1", headers=roots | {"sec-fetch-site": "cross-site"})
        found["crossed"] = crossed.status_code
        await asyncio.to_thread(change_password, ann)
        found["changed"] = await status(anns)
        return found


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
    assert json.loads(visited.stdout) == {
        "page": "a page of Django",
        "health": 200,
        "nobody": [401, 401],
        "customer": 401,
        "former": 401,
        "ann": ["read-files", "view"],
        "root": ["admin", "enqueue", "operate", "read-files", "view", "write-files"],
        "users": [403, 200],
        "crossed": 403,
        "changed": 401,
    }
