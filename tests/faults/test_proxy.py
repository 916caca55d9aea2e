from __future__ import annotations

import gc
import socket
from contextlib import ExitStack

from tests.faults.proxy import ProxyThread


def test_a_closed_proxy_leaves_no_connection_open_whatever_it_was_at() -> None:
    """A socket left open fails the test in which it is collected, since warnings are errors."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as target:
        for _ in range(30):
            with ExitStack() as clients, ProxyThread() as proxies:
                port = proxies.proxy(target.getsockname()[1]).port
                for _ in range(5):
                    client = clients.enter_context(socket.socket())
                    client.setblocking(False)
                    client.connect_ex(("127.0.0.1", port))
    gc.collect()
