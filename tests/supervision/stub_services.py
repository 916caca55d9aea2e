"""Services of a stub node's slots. They append what happens to them to a file, a line of JSON each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peerd import Message
from peerd.domain.errors import MessageError
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_output import rotate_if_full
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import ProcessContext


class StubService:
    """Does what its payload says for its slot: `{"notes": file, "slots": {SLOT: {"start": …, "run": …}}}`."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.payload = {**payload, **payload["slots"].get(payload["slot"], {})}
        self.stopped = asyncio.Event()

    def note(self, kind: str, **more: object) -> None:
        line = json.dumps({"kind": kind, "slot": self.link.slot, "pid": os.getpid(), "at": time.monotonic(), **more})
        with Path(self.payload["notes"]).open("a") as file:
            file.write(line + "\n")

    async def start(self, link: Link) -> Mapping[str, object]:
        self.link = link
        self.process = ProcessContext(link, EventBus(lambda event: self.note("event", event=repr(event))))
        self.messenger = self.process.messenger
        self._listen()
        self.note("start", generation=link.generation)
        if link.generation in range(*self.payload.get("weak", (0, 0))):
            raise RuntimeError("the disk is not mounted")
        if link.is_replacement:
            await self._do("replace")
        await self._do("start")
        return {"process_id": os.getpid() * 10}

    async def run(self) -> None:
        self.note("run")
        await self._do("run")
        await self.stopped.wait()

    async def receive(self, message: Mapping[str, Any]) -> None:
        if self.messenger.receive(message):
            return
        self.note("received", message=message)
        if message["type"] == "death" and self.link.generation == self.payload.get("dies_of_a_death_in"):
            os.kill(os.getpid(), 9)
        if message["type"] == "death" and not self._once("unacknowledged"):
            self.link.send({"type": "death-acknowledged", "id": message["id"]})

    async def stop(self, grace: float) -> None:
        self.note("stop", grace=grace)
        await self._work(grace)
        await self._do("stop")
        self.note("stopped", grace=grace)
        self.stopped.set()

    def _listen(self) -> None:
        """Take messages: some are noted, and some ask it to do something with its messenger."""
        self.messenger.on("note", lambda m: self.note("message", data=m.data, sender=m.sender.slot))
        self.messenger.on("relay", self._relay)
        self.messenger.on("do", self._do_for_others)
        self.messenger.on("die", lambda m: os.kill(os.getpid(), 9))
        self.messenger.on("block", lambda m: time.sleep(m.data))
        self.messenger.on("fail", lambda m: self.do_fail("no such cache"))
        self.messenger.on("bereave", lambda m: self.process.run_in_background(self._bereave()))
        if self.payload.get("peers"):
            self.messenger.on_change(self._note_peers)

    def _note_peers(self) -> None:
        agent = self.messenger.agent
        workers = {peer.slot: peer.pid for peer in self.messenger.workers}
        self.note("peers", agent=agent.pid if agent else None, workers=workers)

    async def _relay(self, message: Message) -> Any:
        """Let the process with a pid do it, which may be oneself."""
        pid = message.data["pid"]
        return await self.messenger.request(pid, "do", message.data, timeout=20.0)

    async def _do_for_others(self, message: Message) -> Any:
        call = getattr(self.messenger, message.data["call"])
        try:
            return {"value": await call(*message.data["args"], **message.data["more"])}
        except MessageError as error:
            return {"error": type(error).__name__, "text": str(error)}

    async def _bereave(self) -> None:
        """Kill the agent, and write to it as soon as there is none."""
        agent = self.messenger.agent
        assert agent is not None
        os.kill(agent.pid, 9)
        while self.messenger.agent is not None:  # noqa: ASYNC110 - its master is to say it
            await asyncio.sleep(0.01)
        self.note("bereaved", delivered=await self.messenger.send_to_agent("note", "are you there?"))

    async def _work(self, grace: float) -> None:
        """What runs at a stop takes `work` seconds, until there is a file `until`, or as long as `clients` is one."""
        await asyncio.sleep(min(grace, self.payload.get("work", 0.0)))
        if until := self.payload.get("until"):
            await self.do_until(until)
        if clients := self.payload.get("clients"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if grace == math.inf else grace):
                    await self.do_until(clients, is_there=False)

    async def _do(self, when: str) -> None:
        for deed in self.payload.get(when, []):
            name, _, argument = deed.partition(" ")
            if name == "once":
                name, _, argument = argument.partition(" ") if self._once(f"{when}-{argument}") else ("nothing", "", "")
            result = getattr(self, f"do_{name}")(argument)
            if result is not None:
                await result

    def _once(self, what: str) -> bool:
        """True the first `payload[what]` times over all processes of the slot (1 when not given)."""
        counter = Path(f"{self.payload['notes']}.{self.link.slot}.{what}")
        done = len(counter.read_bytes()) if counter.exists() else 0
        if what == "unacknowledged" and what not in self.payload:
            return False
        if done < self.payload.get(what, 1):
            with counter.open("ab") as file:
                file.write(b".")
            return True
        return False

    def do_nothing(self, _: str) -> None:
        pass

    def do_fail(self, text: str) -> None:
        raise RuntimeError(text or "it is broken")

    def do_crash(self, _: str) -> None:
        os.kill(os.getpid(), 9)

    def do_exit(self, status: str) -> None:
        sys.exit(int(status))

    def do_block(self, _: str) -> None:
        """Hold the loop, as careless code does."""
        self.note("blocks")
        time.sleep(600)

    def do_thread(self, _: str) -> None:
        """Leave a thread behind that the interpreter waits for."""
        threading.Thread(target=time.sleep, args=(600,)).start()

    def do_deaf(self, _: str) -> None:
        """Hold the whole interpreter as C code does that never lets go; here by stopping oneself."""
        self.note("deaf")
        os.kill(os.getpid(), 19)

    def do_sleep(self, seconds: str) -> Any:
        return asyncio.sleep(float(seconds))

    async def do_wait(self, seconds: str) -> None:
        """Boot slowly, and say why."""
        until = time.monotonic() + float(seconds)
        while time.monotonic() < until:
            self.link.report_still_booting("the database does not answer")
            await asyncio.sleep(0.1)

    def do_spawn(self, how: str) -> None:
        """Start a program that would outlive us: in our group, or in a session of its own."""
        program = subprocess.Popen(["sleep", "600"], start_new_session=how == "session")
        program.returncode = 0  # it is to be left alone
        self.note("spawned", program=program.pid)

    def do_spawn_deaf(self, how: str) -> None:
        """Start a program that ignores SIGTERM, and so does what it starts itself; wait until it does."""
        script = "trap '' TERM INT HUP; sleep 600 & echo ready; wait"
        program = subprocess.Popen(["sh", "-c", script], start_new_session=how == "session", stdout=subprocess.PIPE)
        assert program.stdout is not None
        program.stdout.readline()
        program.returncode = 0  # it is to be left alone
        self.note("spawned", program=program.pid)

    def do_orphan(self, _: str) -> None:
        """Start a program whose parent ends at once. It ends when there is a file `orphan-may-end`."""
        until = Path(self.payload["notes"]).with_name("orphan-may-end")
        script = f"(while [ ! -e {until} ]; do sleep 0.02; done) > /dev/null 2>&1 & echo $!"
        orphan = int(subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout)
        stat = Path(f"/proc/{orphan}/stat").read_text()
        self.note("orphaned", orphan=orphan, parent=int(stat.rpartition(")")[2].split()[1]))

    async def do_listen(self, _: str) -> None:
        """Answer each connection on each socket with one's process id."""

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"{os.getpid()} {sorted(self.link.sockets)}".encode())
            writer.close()

        for one in self.link.sockets.values():
            await asyncio.start_server(answer, sock=one)
        self.note("environment", names=sorted(os.environ))

    async def do_until(self, file: str, *, is_there: bool = True) -> None:
        """Wait until there is such a file, or none any more."""
        while os.path.exists(file) is not is_there:  # noqa: ASYNC110, ASYNC240, PTH110 - the test makes it
            await asyncio.sleep(0.02)

    def do_leave(self, _: str) -> None:
        self.stopped.set()

    def do_late_signal(self, _: str) -> None:
        """Be sent SIGTERM while the interpreter is taken apart, when it has put signals back to their defaults."""
        vars(sys)["thrown away last"] = AtTheEnd(os.kill, os.getpid(), signal.SIGTERM)

    def do_hang_at_the_end(self, _: str) -> None:
        """Block the main thread while the interpreter is taken apart, when no other thread runs any more."""
        vars(sys)["thrown away last"] = AtTheEnd(time.sleep, 600)

    def do_taint(self, _: str) -> None:
        self.link.tainted("it saw something terrible")

    def do_taint_task(self, _: str) -> None:
        async def fail() -> None:
            raise RuntimeError("no code awaits this task")

        # No reference is kept, as in careless code: its failure is reported when it is collected.
        asyncio.get_running_loop().create_task(fail()).add_done_callback(lambda _: None)

    def do_taint_thread(self, _: str) -> None:
        threading.Thread(target=self.do_fail, args=("in a thread",)).start()

    def do_recycle(self, _: str) -> None:
        self.link.recycle("had 1000 tasks")

    def do_own_signals(self, when: str) -> None:
        """Handle other signals oneself, as user code may."""
        if when == "loop":
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.note, "own signal")
        else:
            signal.signal(signal.SIGUSR1, lambda *_: self.note("own signal"))
        os.kill(os.getpid(), signal.SIGUSR1)

    def do_write(self, count: str) -> None:
        """Write so many numbered lines to the log, and hold the loop meanwhile."""
        for number in range(int(count)):
            self._write_line(number)
        self.note("written")

    def do_write_between_rotations(self, argument: str) -> None:
        """Write so many numbered lines between each two of so many rotations of the log, and hold the loop."""
        count, rotations = map(int, argument.split())
        for number in range(count * rotations):
            while number // count > self._count_rotations():
                time.sleep(0.002)
            self._write_line(number)
            if number % 20 == 0:
                time.sleep(0.002)
        self.note("written")

    def _write_line(self, number: int) -> None:
        stream = (sys.stdout, sys.stderr)[number % 2]
        print(f"{self.link.slot} {number} {'x' * (number * 37 % 3000)} end", file=stream)

    def _count_rotations(self) -> int:
        log = Path(str(self.link.log_file))
        return len(list(log.parent.glob(f"{log.name}.*")))

    async def do_rotate(self, _: str) -> None:
        """Keep the log small, very eagerly."""
        log = Path(str(self.link.log_file))
        while True:
            rotate_if_full(log, 50_000, 1000, self.link.request_log_reopen)
            await asyncio.sleep(0.01)

    def do_babble(self, _: str) -> None:
        self.link._control._end.send(b"\xff" * 64)


def stub(payload: Mapping[str, Any]) -> StubService:
    return StubService(payload)


def unmade(payload: Mapping[str, Any]) -> StubService:
    raise LookupError("there is no such service")


class AtTheEnd:
    """Calls a function when it is thrown away."""

    def __init__(self, call: Callable[..., None], *args: Any) -> None:
        self.call, self.args = call, args

    def __del__(self) -> None:
        self.call(*self.args)
