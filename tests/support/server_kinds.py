"""The database servers that tests run on."""

from tests.support.galera import Galera, SharedGalera
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.newest import NewestMariaDB, NewestPostgreSQL
from tests.support.pgbouncer import PooledPostgreSQL
from tests.support.postgresql import PostgreSQL
from tests.support.server import DatabaseServer

SERVERS: dict[str, type[DatabaseServer]] = {"mariadb": MariaDB, "postgresql": PostgreSQL, "mysql": MySQL}
ON_SERVERS = tuple(SERVERS)
"""The kinds on which sessions wait for the locks of others, and connections break."""
INNODB = ("mariadb", "mysql")
MORE_SERVERS: dict[str, type[DatabaseServer | Galera]] = {
    "galera": SharedGalera,
    NewestMariaDB.kind: NewestMariaDB,
    NewestPostgreSQL.kind: NewestPostgreSQL,
    PooledPostgreSQL.kind: PooledPostgreSQL,
}
SHARED_SERVERS: dict[str, type[DatabaseServer | Galera]] = {**SERVERS, **MORE_SERVERS}
