"""The database servers that tests run on."""

from tests.support.mariadb import MariaDB
from tests.support.postgresql import PostgreSQL
from tests.support.server import Server

SERVERS: dict[str, type[Server]] = {"mariadb": MariaDB, "postgresql": PostgreSQL}
