"""Requests that wait for other nodes, as puts of durable copies do: that takes nothing away from what they wait for."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
import sqlalchemy as sa
from blake3 import blake3

from peerd.domain.files import FileClass
from peerd.runtime.observability.events import BadCopiesFound
from peerd.storage.node import COPIED_AT_ONCE
from peerd.storage.running_uploads import COMPLETED_AT_ONCE
from peerd.storage.server.app import THREADS
from peerd.storage.server.file_routes import MAX_AT_ONCE
from peerd.store.files.buckets import get_bucket
from peerd.store.files.checks import STAGED_FOR
from peerd.store.files.classes import set_class
from peerd.store.schema.tables import disks, file_checks, files
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually
from tests.storage.nodes import ServedNode, ask_node, node_signature
from tests.storage.s3_front.conftest import S3Cluster

Put = Callable[[], Any]


@pytest.fixture
def cluster(cluster: S3Cluster) -> S3Cluster:
    """Two nodes, a file `read`, and a class that wants each further file on both of them."""
    cluster.catalogue.bucket()
    assert ask_node(cluster.a, "PUT", "/files/films/read", b"bytes").status_code == 201
    cluster.run_tasks()
    cluster.catalogue.store.run(set_class, FileClass(name="default", copies=2, durable=2))
    return cluster


def upload(node: ServedNode, key: str) -> Put:
    """Begin an upload and send its only part; its completion is returned."""
    content = os.urandom(1_000)
    upload_id = ask_node(node, "POST", f"/uploads/films/{key}?size={len(content)}").json()["id"]
    ask_node(node, "PUT", f"/uploads/{upload_id}?offset=0", content + blake3(content).digest())
    target = f"/uploads/{upload_id}?size={len(content)}&blake3={blake3(content).hexdigest()}"
    return lambda: ask_node(node, "POST", target).status_code


def multipart(s3: Any, key: str) -> Put:
    named = {"Bucket": "films", "Key": key}
    named["UploadId"] = s3.create_multipart_upload(**named)["UploadId"]
    tag = s3.upload_part(**named, PartNumber=1, Body=b"part")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    return lambda: s3.complete_multipart_upload(**named, MultipartUpload=parts)


def test_puts_that_wait_for_copies_take_no_thread_of_those_that_read_and_copy(cluster: S3Cluster) -> None:
    node, s3 = cluster.a, cluster.client()
    puts: list[Put] = [lambda: s3.put_object(Bucket="films", Key="s3", Body=b"body")]
    for number in range(THREADS + 1):
        size = number or MAX_AT_ONCE + 1
        puts.append(partial(ask_node, node, "PUT", f"/files/films/put-{number}", os.urandom(size)))
    puts += [upload(node, f"upload-{number}") for number in range(COMPLETED_AT_ONCE + 1)]
    source = {"Bucket": "films", "Key": "read"}
    for number in range(COPIED_AT_ONCE + 1):
        copied = partial(s3.copy_object, Bucket="films", Key=f"copied-{number}", CopySource=source)
        puts += [copied, multipart(s3, f"parts-{number}")]
    with ThreadPoolExecutor(len(puts)) as clients:
        waiting = [clients.submit(put) for put in puts]
        try:
            eventually(lambda: cluster.catalogue.count(files, files.c.state == "staged") == len(puts), timeout=15)
            target = "/files/films/read"
            found = httpx.get(node.url + target, headers=node_signature(node, "GET", target), timeout=5.0)
            assert found.content == b"bytes"
        finally:
            cluster.run_tasks()  # the other node goes on, and reads the contents from this one
        outcomes = [one.result(30) for one in waiting]
    refused = [one.text for one in outcomes if isinstance(one, httpx.Response) and one.status_code != 201]
    assert refused == []
    assert cluster.catalogue.count(files, files.c.is_current == 1) == len(puts) + 1


def test_a_put_that_is_given_up_leaves_nothing_and_no_copy_that_looks_damaged(cluster: S3Cluster) -> None:
    a = cluster.a
    a.node.events.listen(a.events.append)
    a.node.options = msgspec.structs.replace(a.node.options, durable_within=0.1)
    before = a.contents()
    refused = ask_node(a, "PUT", "/files/films/f", b"body")
    assert (refused.status_code, refused.json()["code"]) == (503, "TooFewDurable")
    [left] = set(a.contents()) - set(before)
    assert a.duties.verify(a.disk, [left], threading.Event(), lambda *_: None) == {"verified": 0, "bad": 0}
    cluster.run_tasks()
    assert a.contents() == before
    assert [event for event in a.events if isinstance(event, BadCopiesFound)] == []
    assert ask_node(a, "GET", "/files/films/f").status_code == 404


def test_an_upload_with_too_few_copies_in_time_is_completed_later_without_sending_it_again(cluster: S3Cluster) -> None:
    a, complete = cluster.a, upload(cluster.a, "film")
    patient = a.node.options
    a.node.options = msgspec.structs.replace(patient, durable_within=0.1)
    assert complete() == 503
    assert ask_node(a, "GET", "/files/films/film").status_code == 404
    a.node.options = patient
    with ThreadPoolExecutor(1) as client:
        again = client.submit(complete)
        cluster.run_tasks()  # the copy that was planned is made at last
        assert again.result(30) == 201
    assert len(ask_node(a, "GET", "/files/films/film").content) == 1_000


def test_an_upload_with_too_few_copies_for_an_hour_begins_anew(cluster: S3Cluster) -> None:
    a, complete = cluster.a, upload(cluster.a, "film")
    before = a.contents()
    a.node.options = msgspec.structs.replace(a.node.options, durable_within=0.1)
    assert complete() == 503
    is_staged, change = files.c.state == "staged", cluster.catalogue.change
    change(files, is_staged, created_at=seconds_from_now(0.9 * -STAGED_FOR))
    assert complete() == 503, "the hour begins again"
    assert cluster.catalogue.count(files, files.c.created_at < seconds_from_now(0.5 * -STAGED_FOR)) == 0
    change(files, is_staged, created_at=seconds_from_now(-STAGED_FOR))
    change(file_checks, sa.true(), due_at=seconds_from_now(-1))
    cluster.run_tasks()
    assert complete() == 410
    cluster.run_tasks()
    assert a.contents() == before
    assert cluster.catalogue.count(files) == 1, "the other file alone"


def test_a_node_whose_readers_all_wait_for_a_frozen_node_sends_contents_to_others(cluster: S3Cluster) -> None:
    a, catalogue = cluster.a, cluster.catalogue
    content = f"/contents/{a.contents()[0]}"
    frozen = catalogue.disk("frozen")
    bucket = catalogue.store.read(get_bucket, "films")
    with ExitStack() as closed:
        silent = closed.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        silent.settimeout(30.0)
        catalogue.change(disks, disks.c.id == frozen, url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        catalogue.put(bucket, "far", frozen, 5)
        clients = closed.enter_context(ThreadPoolExecutor(THREADS))
        waiting = [clients.submit(ask_node, a, "GET", "/files/films/far") for _ in range(THREADS)]
        with ExitStack() as asked:
            for _ in waiting:
                asked.enter_context(silent.accept()[0])
            found = httpx.get(a.url + content, headers=node_signature(a, "GET", content), timeout=5.0)
            assert found.content == b"bytes"
            silent.close()
        assert {one.result(30).status_code for one in waiting} == {503}


def test_a_node_whose_relayed_parts_all_wait_for_a_frozen_node_answers_others(cluster: S3Cluster) -> None:
    """Nodes that wait for each other in this way would answer nothing until the relayed requests are given up."""
    a, b, named = cluster.a, cluster.nodes["b"], {"Bucket": "films", "Key": "far"}
    named["UploadId"] = cluster.client("b").create_multipart_upload(**named)["UploadId"]
    url = cluster.client().generate_presigned_url("upload_part", {**named, "PartNumber": 1})
    read = "/files/films/read"
    with ExitStack() as closed:
        silent = closed.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        silent.settimeout(30.0)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        cluster.catalogue.change(disks, disks.c.id == b.disk, url=address)
        clients = closed.enter_context(ThreadPoolExecutor(THREADS))
        waiting = [clients.submit(httpx.put, url, content=b"a part", timeout=60.0) for _ in range(THREADS)]
        with ExitStack() as asked:
            for _ in waiting:
                received, relayed = b"", asked.enter_context(silent.accept()[0])
                while not received.endswith(b"a part"):
                    received += relayed.recv(65_536)
            found = httpx.get(a.url + read, headers=node_signature(a, "GET", read), timeout=5.0)
            assert found.content == b"bytes"
            silent.close()
        assert {one.result(60).status_code for one in waiting} == {503}
