"""The database servers that tests run on."""

from tests.support.galera import Galera
from tests.support.mariadb import MariaDB
from tests.support.postgresql import PostgreSQL
from tests.support.server import Server

SERVERS: dict[str, type[Server]] = {"mariadb": MariaDB, "postgresql": PostgreSQL}
KEPT: dict[str, type[Server | Galera]] = {**SERVERS, "galera": Galera}
"""What a test run starts once, and shares."""
