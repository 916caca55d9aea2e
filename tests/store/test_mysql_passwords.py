"""Logins to MySQL by `caching_sha2_password`: passwords go by TLS, or encrypted by the server's key."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any, Final

import pytest
from sqlalchemy.engine import URL, make_url

from peerd.config.address import normalise_url
from peerd.domain.errors import PeerdError
from peerd.store.connection.database import Database
from tests.support.servers import ServerFactory, execute

C_DRIVER_IS_INSTALLED: Final = not normalise_url("mysql://localhost/peerd").startswith("mysql+pymysql")
DRIVERS: Final = ("mysql+pymysql", *(["mysql+mysqldb"] if C_DRIVER_IS_INSTALLED else []))


@pytest.mark.slow
def test_a_user_logs_in_by_each_driver_with_and_without_tls(
    private_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = private_server("mysql")

    def cipher(driver: str, address: URL, password: str | None) -> str:
        execute(server, "FLUSH PRIVILEGES")  # and the server's cache, whose passwords need no encryption
        with closing(Database(address.set(drivername=driver, password=password))) as database:
            found: Any = database.read(lambda one: one.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").one())
        return str(found[1])

    for tls in (True, False):
        address = make_url(server.url("peerd"))
        if not tls:
            server.stop()
            monkeypatch.setattr(server, "command", partial(_without_tls, server.command()))
            server.start()
        for driver in DRIVERS:
            if tls and driver == "mysql+mysqldb":  # which encrypts where a certificate is named
                address = address.update_query_dict({"ssl_ca": str(server.data / "ca.pem")})
            assert bool(cipher(driver, address, address.password)) is tls, driver
            for wrong in ("not this", ""):
                with pytest.raises(PeerdError, match="Access denied"):
                    cipher(driver, address, wrong)


def _without_tls(command: list[str]) -> list[str]:
    return [*command, "--tls-version="]
