"""Histories of files on three nodes, each with an interruption or a damage in it, and the audit of their ends.

Each returns the problems that the audit has found: none of the product, and some of a variant of it that is broken.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from typing import Any, Final

import msgspec
from blake3 import blake3

from peerd.domain.errors import PeerdError
from peerd.domain.file_errors import FileConditionFailed
from peerd.domain.files import DiskState, FileClass, StoredFile
from peerd.storage.awaiting import TooFewDurable
from peerd.storage.disk.open_disk import LocalRange
from peerd.storage.duties import Duties
from peerd.storage.node import StorageNode
from peerd.storage.receiving import Received, Receiving
from peerd.storage.serving import FileReading
from peerd.storage.uploads import remove_aborted
from peerd.store.files.checks import request_checks
from peerd.store.files.classes import set_class
from peerd.store.files.copies import plan_copies, plan_removals
from peerd.store.files.disks import set_disk_state
from peerd.store.files.uploads import mark_aborted, uploads_of_key
from peerd.store.files.versions import Condition, delete_file, find_file, get_version
from peerd.store.schema.tables import disks as disk_table
from tests.faults.storage.crash_process import EVERY_PHASE, CrashProcess, bytes_of
from tests.faults.storage.disk_audit import DiskAudit, audit, digest_of_file, find_on_disks, read_catalogue
from tests.storage.nodes import SECRET, NoRings, ServedNode, StorageCluster, carry_out

LARGE: Final = 2_000_000
"""Bytes of a content that is pulled alone; smaller ones are pulled many at once."""
SMALL: Final = 3_000


class FileSteps:
    """What scenarios do with files: as clients through the nodes of this process, and as the operator."""

    def __init__(self, cluster: StorageCluster) -> None:
        self.cluster = cluster
        self.bucket = cluster.catalogue.bucket()
        self.acknowledged: dict[str, bytes | None] = {}
        """By key; None: deleted."""

    def put(self, node: ServedNode, key: str, content: bytes, **more: Any) -> StoredFile:
        """Put a file; it is acknowledged when this returns."""
        node.node.disks.refresh()
        with Receiving.begin(node.node, len(content)) as receiving:
            receiving.write(content)
            file = carry_out(node.node, receiving.finish(Received(bucket=self.bucket.name, key=key, **more)))
        self.acknowledged[key] = content
        return file

    def delete(self, key: str) -> None:
        self.cluster.catalogue.store.run(delete_file, self.bucket, key)
        self.acknowledged[key] = None

    def settle(self) -> None:
        """Run all tasks of all nodes, in between the checks."""
        self.cluster.run_tasks(rounds=30)

    def pending(self, name: str) -> list[tuple[ServedNode, int, list[str]]]:
        """The tasks of this name that wait: the node, the disk, and the files."""
        rows = [row for row in self.cluster._pending() if row["name"] == name]
        by_id = {node.node.node_id: node for node in self.cluster.nodes.values()}
        bodies = [(by_id[row["node_id"]], msgspec.json.decode(row["body"])) for row in rows]
        return [(node, body["disk"], body["files"]) for node, body in bodies]

    def holders(self, file: StoredFile) -> list[ServedNode]:
        """The nodes that have a row of a copy, in the order of their names."""
        copies = self.cluster.catalogue.copies(file.id)
        return [node for node in self.cluster.nodes.values() if node.disk in copies]

    def read(self, node: ServedNode, key: str) -> bytes | None:
        """The bytes that a node gives for a key; None: there is no file."""
        file = self.cluster.catalogue.store.read(find_file, self.bucket, key)
        if file is None:
            return None
        pieces = bytearray()
        with FileReading.begin(node.node, file) as reading:
            for piece in reading.pieces(0, file.size):
                if isinstance(piece, LocalRange):
                    pieces += os.pread(piece.fd, piece.count, piece.offset)
                else:
                    pieces += piece
        return bytes(pieces)

    def problems(self, *, unknown: int = 0) -> list[str]:
        """What is wrong at the end.

        Args:
            unknown: contents without a row that interruptions have left.
        """
        problems: list[str] = []
        try:
            self.settle()
        except AssertionError as error:
            problems.append(str(error)[:200])
        found = self.audit()
        problems += found.problems
        if len(found.unknown) != unknown:
            problems.append(f"{len(found.unknown)} contents without a row, expected were {unknown}")
        for key, content in self.acknowledged.items():
            for node in self.cluster.nodes.values():
                problems += self._read_problems(node, key, content)
        return problems

    def audit(self) -> DiskAudit:
        rows = read_catalogue(self.cluster.catalogue.store)
        return audit(rows, find_on_disks(rows), grace=0.0)

    def _read_problems(self, node: ServedNode, key: str, content: bytes | None) -> list[str]:
        try:
            given = self.read(node, key)
        except PeerdError as error:
            return [f"node {node.name} cannot read {key}: {error}"]
        if given == content:
            return []
        return [f"node {node.name} gives other bytes for {key} than those that were acknowledged"]


def kill_puts(cluster: StorageCluster, crash: CrashProcess, broken: str = "", *, every: int = 1) -> list[str]:
    """A put over a file is killed at each phase, or at some, and then done again for every second file."""
    steps, a = FileSteps(cluster), cluster.nodes["a"]
    probe = crash.run(a, "put", EVERY_PHASE, broken=broken, key="probe", seed="probe", size=SMALL)
    steps.acknowledged["probe"] = bytes_of("probe", SMALL)
    phases = range(0, len(probe.phases), every)
    for phase in phases:
        steps.put(a, f"f{phase}", bytes_of(f"first {phase}", SMALL))
    steps.settle()
    unknown = 0
    for phase in phases:
        key, seed = f"f{phase}", f"second {phase}"
        answer = crash.run(a, "put", phase, broken=broken, key=key, seed=seed, size=SMALL)
        # Its folders may be there by now, which it does not make then.
        assert answer.killed or phase >= len(answer.phases), answer
        if not answer.killed:
            steps.acknowledged[key] = bytes_of(seed, SMALL)
        unknown += answer.killed and "after link" in answer.phases
        if phase % 2:
            steps.put(a, key, bytes_of(seed, SMALL))
    return steps.problems(unknown=unknown)


def kill_uploads(cluster: StorageCluster, crash: CrashProcess) -> list[str]:
    """A put in parts is killed at each phase, and then goes on for every second file; the others are aborted."""
    steps, a = FileSteps(cluster), cluster.nodes["a"]
    probe = crash.run(a, "put in parts", EVERY_PHASE, key="probe", seed="probe", size=SMALL)
    steps.acknowledged["probe"] = bytes_of("probe", SMALL)
    phases = range(len(probe.phases))
    for phase in phases:
        steps.put(a, f"f{phase}", bytes_of(f"first {phase}", SMALL))
    steps.settle()
    for phase in phases:
        key, seed = f"f{phase}", f"second {phase}"
        answer = crash.run(a, "put in parts", phase, key=key, seed=seed, size=SMALL)
        # Its folders may be there by now, which it does not make then.
        assert answer.killed or phase >= len(answer.phases), answer
        if answer.killed and phase % 2:
            answer = crash.run(a, "put in parts", EVERY_PHASE, key=key, seed=seed, size=SMALL)
        if not answer.killed:
            steps.acknowledged[key] = bytes_of(seed, SMALL)
        for upload in cluster.catalogue.store.read(uploads_of_key, steps.bucket, key):
            cluster.catalogue.store.run(mark_aborted, upload.id)
    remove_aborted(a.node)
    return steps.problems()


def kill_copies(cluster: StorageCluster, crash: CrashProcess, broken: str = "", *, size: int = LARGE) -> list[str]:
    """A copy is killed at each phase; its task runs again."""
    return _kill_tasks(cluster, crash, broken, "copy", size, prepare=lambda steps, file: None)


def kill_removals(cluster: StorageCluster, crash: CrashProcess, broken: str = "") -> list[str]:
    """A removal of a deleted file is killed at each phase; its task runs again."""

    def prepare(steps: FileSteps, file: StoredFile) -> None:
        steps.settle()
        steps.delete(file.key)
        _check(steps, file)

    return _kill_tasks(cluster, crash, broken, "remove", SMALL, prepare)


def kill_verifications(cluster: StorageCluster, crash: CrashProcess, broken: str = "") -> list[str]:
    """A verification that finds a damaged copy is killed at each phase; it runs again."""

    def prepare(steps: FileSteps, file: StoredFile) -> None:
        steps.settle()
        node = steps.holders(file)[0]
        damage(node, file)
        node.node.request_verification(node.disk, file.id)

    return _kill_tasks(cluster, crash, broken, "verify", SMALL, prepare)


def _kill_tasks(
    cluster: StorageCluster,
    crash: CrashProcess,
    broken: str,
    name: str,
    size: int,
    prepare: Callable[[FileSteps, StoredFile], None],
) -> list[str]:
    steps, a = FileSteps(cluster), cluster.nodes["a"]
    phase, kills, reached = 0, 0, 1
    while phase < reached:
        file = steps.put(a, f"f{phase}", bytes_of(f"content {phase}", size))
        prepare(steps, file)
        [(node, disk, ids)] = [one for one in steps.pending(name) if f"{file.id:016x}" in one[2]][:1]
        answer = crash.run(node, name, phase, broken=broken, disk=disk, files=ids)
        reached = phase + 2 if answer.killed else len(answer.phases)
        kills += answer.killed
        phase += 1
    assert kills >= 4, f"{name} was killed at {kills} phases only"
    return steps.problems()


def damage_one_of_three(cluster: StorageCluster) -> list[str]:
    """A third copy is to be made, and the source that is asked first is damaged."""
    steps, store = FileSteps(cluster), cluster.catalogue.store
    problems = []
    for number, size in product(range(2), (LARGE, SMALL)):  # either source is damaged, whichever is asked first
        name = f"class-{number}-{size}"
        store.run(set_class, FileClass(name=name, copies=2))
        file = steps.put(cluster.nodes["a"], name, bytes_of(name, size), class_name=name)
        steps.settle()
        first_two = steps.holders(file)
        damage(first_two[number], file)
        store.run(set_class, FileClass(name=name, copies=3))
        _check(steps, file)
        steps.settle()
        [third] = [node for node in steps.holders(file) if node not in first_two]
        if digest_of_file(third.content_path(file.id)) != file.blake3:
            problems.append(f"the copy of {name} that was made is damaged")
    _verify_all(steps)
    return [*problems, *steps.problems()]


def damage_a_disk_that_is_away(cluster: StorageCluster) -> list[str]:
    """A disk is away for longer than its grace, and comes back with a damaged copy; then one copy is enough."""
    steps, catalogue = FileSteps(cluster), cluster.catalogue
    catalogue.store.run(set_class, FileClass(name="plain", copies=2))
    file = steps.put(cluster.nodes["a"], "f", bytes_of("f", LARGE), class_name="plain")
    steps.settle()
    [away] = [node for node in steps.holders(file) if node.name != "a"]
    damage(away, file)
    catalogue.silence(away.disk, 5_000.0)
    catalogue.store.run(set_class, FileClass(name="plain", copies=1))
    cluster.refresh()  # it is back, and has the most room, so that it is the one whose copy would be kept
    catalogue.change(disk_table, disk_table.c.id == away.disk, free=2**60)
    _check(steps, file)
    steps.settle()
    _verify_all(steps)
    return steps.problems()


def delete_while_a_node_is_away(cluster: StorageCluster) -> list[str]:
    """A file is deleted while one of its disks is away."""
    steps, catalogue = FileSteps(cluster), cluster.catalogue
    file = steps.put(cluster.nodes["a"], "f", bytes_of("f", LARGE))
    steps.settle()
    [away] = [node for node in steps.holders(file) if node.name != "a"]
    nodes, others = cluster.nodes, {name: node for name, node in cluster.nodes.items() if node is not away}
    catalogue.silence(away.disk, 5_000.0)
    cluster.nodes = others
    steps.delete("f")
    _check(steps, file)
    steps.settle()
    cluster.nodes = nodes
    return steps.problems()


def damage_unseen(cluster: StorageCluster) -> list[str]:
    """A bit changes, and neither the size nor the time of the content."""
    steps = FileSteps(cluster)
    file = steps.put(cluster.nodes["a"], "f", bytes_of("f", LARGE))
    steps.settle()
    _verify_all(steps)
    damage(cluster.nodes["a"], file, is_seen=False)
    _verify_all(steps)
    return steps.problems()


def read_damaged(cluster: StorageCluster) -> list[str]:
    """A file is read by the node whose copy is damaged."""
    steps = FileSteps(cluster)
    file = steps.put(cluster.nodes["a"], "f", bytes_of("f", LARGE))
    steps.settle()
    damage(cluster.nodes["a"], file)
    given = steps.read(cluster.nodes["a"], "f")
    problems = [] if given == steps.acknowledged["f"] else ["other bytes were given than those that were put"]
    return [*problems, *steps.problems()]


def lose_the_first_disk(cluster: StorageCluster) -> list[str]:
    """A put that is to be durable on two nodes, none but one of which can be reached, and the disk of that is lost."""
    steps, a = FileSteps(cluster), cluster.nodes["a"]
    a.node.options = msgspec.structs.replace(a.node.options, durable_within=0.2)
    cluster.catalogue.store.run(set_class, FileClass(name="safe", copies=2, durable=2))
    with suppress(TooFewDurable):
        file = steps.put(a, "f", bytes_of("f", SMALL), class_name="safe")
        a.content_path(file.id).unlink()
    return steps.problems()


def remove_late(cluster: StorageCluster) -> list[str]:
    """A removal stands still before its last step, is done by another process, and the copy is made anew meanwhile."""
    steps, store = FileSteps(cluster), cluster.catalogue.store
    cluster.refresh()
    third = cluster.nodes.pop("c")
    cluster.catalogue.silence(third.disk, 100.0)  # so that the copy is made on the disk where it was
    for one in cluster.nodes.values():
        one.node.view(fresh=True)
    node = cluster.nodes["b"]
    file = steps.put(cluster.nodes["a"], "f", bytes_of("f", SMALL))
    steps.put(cluster.nodes["a"], "g", bytes_of("g", SMALL))  # so that their folder stays
    steps.settle()
    ids = [f"{file.id:016x}"]
    has_stood_still = threading.Event()

    def stand_still(phase: str) -> None:
        if phase == "before open part" and not has_stood_still.is_set():
            has_stood_still.set()
            node.duties.remove(node.disk, ids)
            store.run(plan_copies, node.disk, {file.id: file.size}, 0)
            node.duties.copy(node.disk, ids, threading.Event(), lambda *_: None)

    late = StorageNode(store, node.name, node.node.options, node.paths[0], SECRET, NoRings(), at=stand_still)
    late.disks.refresh()
    store.run(plan_removals, node.disk, [file.id], 0)
    Duties(late).remove(node.disk, ids)
    assert has_stood_still.is_set()
    return steps.problems()


def lose_a_disk_with_tasks(cluster: StorageCluster) -> list[str]:
    """A disk is declared lost while tasks for it wait; each of them ends."""
    steps, b = FileSteps(cluster), cluster.nodes["b"]
    file = steps.put(cluster.nodes["a"], "f", bytes_of("f", SMALL))
    steps.settle()
    ids = [f"{file.id:016x}"]
    cluster.catalogue.store.run(set_disk_state, b.disk, DiskState.LOST)
    cluster.refresh()
    progress = threading.Event(), lambda *_: None
    ended = b.duties.copy(b.disk, ids, *progress), b.duties.remove(b.disk, ids), b.duties.verify(b.disk, ids, *progress)
    shutil.rmtree(b.paths[0] / "contents")
    (b.paths[0] / "contents").mkdir()
    _check(steps, file)
    return [*(f"{one} of a lost disk" for one in ended if any(one.values())), *steps.problems()]


def refuse_a_durable_put(cluster: StorageCluster) -> list[str]:
    """A put that is durable on two nodes is refused, because its condition does not hold."""
    steps = FileSteps(cluster)
    steps.put(cluster.nodes["a"], "f", bytes_of("f", SMALL))
    cluster.catalogue.store.run(set_class, FileClass(name="safe", copies=2, durable=2))
    ended = threading.Event()

    def copy() -> None:
        while not ended.wait(0.02):
            steps.settle()

    copier = threading.Thread(target=copy)
    copier.start()
    with suppress(FileConditionFailed):
        steps.put(cluster.nodes["a"], "f", b"other", class_name="safe", condition=Condition(is_absent=True))
    ended.set()
    copier.join()
    return steps.problems()


def cancel_a_put(cluster: StorageCluster) -> list[str]:
    """A put is closed by a request that was cancelled, while a thread publishes it."""
    steps, node = FileSteps(cluster), cluster.nodes["a"]
    publishes, goes_on = threading.Event(), threading.Event()

    def mark(phase: str) -> None:
        if phase == "before link":
            publishes.set()
            goes_on.wait(30)

    slow = StorageNode(
        cluster.catalogue.store, "a", node.node.options, node.paths[0], SECRET, NoRings(), at=mark
    )  # fmt: skip
    slow.disks.refresh()
    receiving = Receiving.begin(slow, SMALL)
    receiving.write(bytes_of("f", SMALL))
    with ThreadPoolExecutor() as pool:
        finished = pool.submit(carry_out, slow, receiving.finish(Received(bucket="films", key="f")))
        assert publishes.wait(30)
        closed = pool.submit(receiving.close)
        with suppress(TimeoutError):
            closed.result(0.3)
        goes_on.set()
        closed.result(30)
        finished.result(30)
    steps.acknowledged["f"] = bytes_of("f", SMALL)
    return steps.problems()


def damage(node: ServedNode, file: StoredFile, *, is_seen: bool = True) -> None:
    """Change one bit of a content on the disk of a node."""
    path = node.content_path(file.id)
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with path.open("r+b") as opened:
        opened.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + (1_000_000_000 if is_seen else 0)))
    assert blake3(path.read_bytes()).hexdigest() != file.blake3


def _check(steps: FileSteps, file: StoredFile) -> None:
    """Decide now what a file needs."""
    store, node = steps.cluster.catalogue.store, next(iter(steps.cluster.nodes.values())).node
    assert store.read(get_version, file.id) is not None
    store.run(request_checks, {file.id: 1})
    view = node.view(fresh=True)
    store.run(lambda connection: node.check(connection, [file.id], view))


def _verify_all(steps: FileSteps) -> None:
    """Have every stored copy verified."""
    for file_id, copies in read_catalogue(steps.cluster.catalogue.store).copies.items():
        for node in steps.cluster.nodes.values():
            if node.disk in copies:
                node.duties.verify(node.disk, [f"{file_id:016x}"], threading.Event(), lambda *_: None)
    steps.settle()
