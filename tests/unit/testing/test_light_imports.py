from __future__ import annotations

import subprocess
import sys

LIST_IMPORTS = """
import sys
import peerd.testing
heavy = {"sqlalchemy", "msgspec", "peerd.store", "peerd.work"} & set(sys.modules)
assert not heavy, heavy
for name in peerd.testing.__all__:
    found = getattr(peerd.testing, name)
    assert found.__doc__ and found.__name__ == name, name
assert set(peerd.testing.__all__) <= set(dir(peerd.testing))
ours = {"pytest", "_pytest", "hypothesis", "aiosqlite", "django", "pymysql", "psycopg"} & set(sys.modules)
assert not ours, ours
"""


def test_importing_it_loads_nothing_and_each_public_name_has_a_docstring_and_needs_nothing_but_peerd() -> None:
    ran = subprocess.run([sys.executable, "-c", LIST_IMPORTS], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
