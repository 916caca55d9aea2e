"""The database servers that tests run on."""

from tests.support.galera import Galera, SharedGalera
from tests.support.mariadb import MariaDB
from tests.support.postgresql import PostgreSQL
from tests.support.server import DatabaseServer

SERVERS: dict[str, type[DatabaseServer]] = {"mariadb": MariaDB, "postgresql": PostgreSQL}
SHARED_SERVERS: dict[str, type[DatabaseServer | Galera]] = {**SERVERS, "galera": SharedGalera}
