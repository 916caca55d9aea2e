"""The node that a standalone server is to the tables: its rows in ``nodes`` and ``processes``, and their heartbeats.

No other server opens the file, because its folder is locked. So at a start all earlier processes of the node have
ended, and what they had reserved is released.
"""

from __future__ import annotations

import os
from typing import Final

from sqlalchemy.engine import Connection

from peerd import __version__
from peerd.gateway.operations import Holder
from peerd.gateway.standalone.flags import PROGRAM
from peerd.store import jobs
from peerd.store.nodes import nodes, processes

ROLE: Final = "gateway"
CAUSE: Final = "it was stopped"


class OwnNode:
    """The rows of this process."""

    def __init__(self) -> None:
        self._incarnation = nodes.new_incarnation()
        self._process_id = 0

    def register(self, connection: Connection, default_ttr: int) -> Holder:
        """Begin an incarnation, release the reservations of earlier ones, and register the process."""
        earlier = nodes.find_node(connection, PROGRAM)
        node_id = nodes.register_incarnation(
            connection,
            PROGRAM,
            self._incarnation,
            replaces=None if earlier is None else earlier.incarnation,
            version=__version__,
        )
        assert node_id is not None
        jobs.release_all(connection, node_id)
        processes.end_earlier_processes(connection, node_id, self._incarnation)
        self._process_id = processes.register_process(
            connection,
            node_id=node_id,
            incarnation=self._incarnation,
            kind=ROLE,
            slot=PROGRAM,
            role=ROLE,
            pid=os.getpid(),
        )
        return Holder(node_id, self._incarnation, self._process_id, default_ttr)

    def heartbeat(self, connection: Connection) -> None:
        """Show other programs that have opened the file that this process runs."""
        nodes.heartbeat_only(connection, PROGRAM, self._incarnation)
        processes.heartbeat_process(connection, self._process_id)

    def deregister(self, connection: Connection) -> None:
        """Record the end of the process and of the incarnation."""
        processes.end_process(connection, self._process_id, CAUSE)
        nodes.deregister_node(connection, PROGRAM, self._incarnation)
