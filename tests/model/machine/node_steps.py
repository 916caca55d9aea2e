"""What nodes and queues do: begin a life, beat, leave, fall silent, drain; pause and resume."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule

from peerd.store import nodes, processes, queues
from tests.model.database_clock import AHEAD, SILENCE
from tests.model.machine.base import QUEUES, ModelMachine
from tests.model.reference import node_rules
from tests.model.reference.state import ModelProcess


class NodeSteps(ModelMachine):
    @rule(
        target=ModelMachine.processes,
        process=ModelMachine.processes,
        what=st.sampled_from(
            [
                *("process", "process beats", "process ends"),
                *("start", "start in vain", "beat", "silence", "leave", "drain", "drain"),
            ]
        ),
        silence=st.sampled_from(SILENCE),
    )
    def node(self, process: ModelProcess, what: str, silence: float) -> Any:
        name, life = process.node, process.incarnation
        match what:
            case "process":
                return self.begin_process(name) or multiple()
            case "process beats":
                goes_on = self.run(processes.heartbeat_process, process.id)
                self.same(goes_on, node_rules.heartbeat_process(self.state, process.id))
            case "process ends":
                self.run(processes.end_process, process.id, "signal 9")
                self.state.beats.pop(process.id, None)
            case "start" | "start in vain":  # in vain: another life has begun since it looked
                self.begin_life(name, replaces=self.state.nodes[name].incarnation if what == "start" else "unseen")
                return self.begin_process(name) or multiple()
            case "beat":
                row = self.both(
                    lambda: self.run(nodes.heartbeat, name, life), lambda: node_rules.beat(self.state, name, life)
                )
                if row is not None:
                    self.same((row.active, row.draining), (True, self.state.nodes[name].draining))
            case "silence":
                got = self.run(nodes.deactivate_silent, silence)
                self.same(sorted(got), node_rules.deactivate_silent(self.state, silence))
            case "leave":
                self.run(nodes.deregister_node, name, life)
                node_rules.leave(self.state, name, life)
            case _:
                draining = not self.state.nodes[name].draining
                self.run(nodes.set_draining, name, draining=draining)
                self.state.nodes[name].draining = draining
        return multiple()

    @rule(queue=st.sampled_from(QUEUES), pauses=st.booleans(), duration=st.sampled_from([None, *AHEAD]))
    def pause_or_resume(self, queue: str, pauses: bool, duration: float | None) -> None:  # noqa: FBT001
        if pauses:
            self.run(queues.pause, queue, duration)
            node_rules.pause(self.state, queue, duration)
        else:
            self.run(queues.resume, queue)
            node_rules.resume(self.state, queue)
