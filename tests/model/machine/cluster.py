"""What nodes and queues do: begin a life, beat, leave, fall silent, drain; pause and resume."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule

from peerd.store import nodes, queues
from tests.model.clock import AHEAD, SILENCE
from tests.model.machine.base import NODES, QUEUES, Base
from tests.model.reference import cluster
from tests.model.reference.state import Process

names = st.sampled_from(NODES)


class Cluster(Base):
    """Rules of nodes and queues."""

    @rule(target=Base.processes, name=names, as_seen=st.booleans())
    def start_a_node(self, name: str, as_seen: bool) -> Any:  # noqa: FBT001
        """A node starts again; in vain, if another life has begun since it looked."""
        self.begin_life(name, replaces=self.state.nodes[name].incarnation if as_seen else "the one before")
        return self.begin_process(name) or multiple()

    @rule(process=Base.processes, silence=st.sampled_from(SILENCE))
    def beat(self, process: Process, silence: float) -> None:
        """A life of a node goes on, if it is the present one; and those that are silent are seen to be."""
        now = self.clock.now()
        row = self.both(
            lambda: self.run(nodes.beat, process.node, process.incarnation),
            lambda: cluster.beat(self.state, process.node, process.incarnation, now),
        )
        if row is not None:
            self.same((row.active, row.draining), (True, self.state.nodes[process.node].draining))
        got = self.run(nodes.deactivate_silent, silence)
        self.same(sorted(got), cluster.deactivate_silent(self.state, silence, now))

    @rule(process=Base.processes, leaves=st.booleans(), draining=st.booleans())
    def leave_or_drain(self, process: Process, leaves: bool, draining: bool) -> None:  # noqa: FBT001
        if leaves:
            now = self.clock.now()
            self.run(nodes.leave, process.node, process.incarnation)
            cluster.leave(self.state, process.node, process.incarnation, now)
        else:
            self.run(nodes.set_draining, process.node, draining=draining)
            self.state.nodes[process.node].draining = draining

    @rule(queue=st.sampled_from(QUEUES), pauses=st.booleans(), duration=st.none() | st.sampled_from(AHEAD))
    def pause_or_resume(self, queue: str, pauses: bool, duration: float | None) -> None:  # noqa: FBT001
        now = self.clock.now()
        if pauses:
            self.run(queues.pause, queue, duration)
            cluster.pause(self.state, queue, duration, now)
        else:
            self.run(queues.resume, queue)
            cluster.resume(self.state, queue, now)
