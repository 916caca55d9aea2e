"""An object store that refuses requests because there are too many: what survives it, and what is said of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import digest_of
from peerd.storage.disk.errors import ContentMissing, DiskBusy, DiskError
from peerd.storage.object_disk import bucket as bucket_module
from peerd.storage.object_disk import disk as disk_module
from peerd.storage.object_disk.bucket import ObjectBucket
from peerd.storage.object_disk.disk import ObjectDisk, create_object_disk, object_name, open_object_disk
from peerd.storage.object_disk.errors import ObjectStoreThrottled, ObjectStoreUnreachable
from tests.storage.object_disk.conftest import CLUSTER
from tests.support.object_store import ObjectStoreServer
from tests.support.throttling import FOR_EVER, Refusal, StoreRequest, ThrottlingProxy, throttling_proxy

MIB = 1024 * 1024
SLOW_DOWN = Refusal()
TOO_MANY = Refusal(status=429, code="TooManyRequests", retry_after=2)
WITHOUT_DOCUMENT = Refusal(status=429, code=None)
IN_BODY = Refusal(status=200)
"""As S3 answers to requests that take long: the head was sent before it was known that they fail."""
SEVERAL = 5
"""Refusals of each request, which with the pauses of the product are some seconds."""


@pytest.fixture
def proxy(moto: ObjectStoreServer) -> Iterator[ThrottlingProxy]:
    with throttling_proxy(moto.url) as proxy:
        yield proxy


@pytest.fixture
def short_first_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pause is shorter than it is, and so are the next ones."""
    monkeypatch.setattr(bucket_module, "FIRST_PAUSE", timedelta(milliseconds=10))


@pytest.fixture
def throttled_disk(moto: ObjectStoreServer, proxy: ThrottlingProxy) -> ObjectDisk:
    """A disk behind the proxy."""
    options = moto.options(endpoint=proxy.url)
    create_object_disk(ObjectBucket(options), CLUSTER)
    return open_object_disk(options, CLUSTER, lambda _: 0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are given up soon."""
    monkeypatch.setattr(bucket_module, "RETRY_TIMEOUT", timedelta(seconds=0.5))
    monkeypatch.setattr(bucket_module, "QUICK_RETRY_TIMEOUT", timedelta(seconds=0.3))


def first_tries(count: int) -> Callable[[StoreRequest], bool]:
    """Each request so many times."""
    seen: Counter[StoreRequest] = Counter()

    def is_early(request: StoreRequest) -> bool:
        seen[request] += 1
        return seen[request] <= count

    return is_early


def test_a_store_without_conditions_is_asked_once_with_one(moto: ObjectStoreServer, proxy: ThrottlingProxy) -> None:
    """Its answer is one of a server in trouble, which is repeated for a long time otherwise."""
    proxy.refuse(FOR_EVER, Refusal(status=501, code="NotImplemented"), only=lambda request: request.is_conditional)
    options = moto.options(endpoint=proxy.url)
    identity = create_object_disk(ObjectBucket(options), CLUSTER)
    assert len(proxy.refused) == 1
    assert open_object_disk(options, CLUSTER, lambda _: 0).identity == identity
    moto.empty()
    proxy.refuse(1, SLOW_DOWN, only=lambda request: request.is_conditional)
    create_object_disk(ObjectBucket(options), CLUSTER)  # although its first request is put off
    assert len(proxy.refused) == 1


@pytest.mark.usefixtures("short_first_pause")
@pytest.mark.parametrize(
    ("refusal", "size"), [(SLOW_DOWN, 300_000), pytest.param(TOO_MANY, 17 * MIB, marks=pytest.mark.slow)]
)
def test_a_refused_request_is_made_again(
    throttled_disk: ObjectDisk, proxy: ThrottlingProxy, refusal: Refusal, size: int
) -> None:
    data, content = os.urandom(size), ContentId(7)
    proxy.refuse(FOR_EVER, refusal, only=first_tries(SEVERAL))
    put(throttled_disk, content, data)
    with throttled_disk.open(content) as opened:
        opened.verify(digest_of(data))
    assert [one.content for batch in throttled_disk.walk(batch=10) for one in batch] == [content]
    throttled_disk.quarantine(content, "mismatch", 1_700_000_000)
    assert throttled_disk.restore(content, digest_of(data))
    throttled_disk.remove(content)
    assert {one.method for one in proxy.refused} >= {"PUT", "HEAD", "GET", "DELETE"}
    in_parts = {"uploads", "partNumber", "uploadId"}
    assert {query_of(one) for one in proxy.refused} & in_parts == (in_parts if size > MIB else set())
    proxy.pass_all()
    with pytest.raises(ContentMissing):
        throttled_disk.open(content)


def query_of(request: StoreRequest) -> str:
    """The name of the first parameter."""
    return request.target.partition("?")[2].partition("=")[0]


@pytest.mark.usefixtures("short_first_pause")
def test_a_refusal_in_the_body_of_a_good_answer_is_one(throttled_disk: ObjectDisk, proxy: ThrottlingProxy) -> None:
    data, content = os.urandom(9 * MIB), ContentId(7)
    proxy.refuse(FOR_EVER, IN_BODY, only=lambda one: query_of(one) == "uploadId" and first(one))
    first = first_tries(2)
    put(throttled_disk, content, data)
    assert len(proxy.refused) == 2
    proxy.refuse(2, IN_BODY, only=lambda one: one.method == "PUT")
    throttled_disk.quarantine(content, "mismatch", 1_700_000_000)
    assert len(proxy.refused) == 2
    proxy.pass_all()
    assert throttled_disk.restore(content, digest_of(data))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("refusal", [SLOW_DOWN, pytest.param(WITHOUT_DOCUMENT, marks=pytest.mark.slow)])
def test_what_is_refused_for_ever_is_an_error_that_says_so_and_no_missing_content(
    throttled_disk: ObjectDisk, proxy: ThrottlingProxy, moto: ObjectStoreServer, refusal: Refusal
) -> None:
    content, missing = ContentId(7), ContentId(8)
    moto.client.put_object(Bucket="copies", Key=f"peerd/one/{object_name(content)}", Body=b"bytes")
    opened = throttled_disk.open(content)
    proxy.refuse(FOR_EVER, refusal)
    requests: list[Callable[[], object]] = [
        lambda: throttled_disk.open(content),
        lambda: throttled_disk.open(missing),
        lambda: opened.read(0, 5),
        lambda: opened.verify(digest_of(b"bytes")),
        lambda: throttled_disk.remove(content),
        lambda: throttled_disk.quarantine(content, "mismatch", 0),
        lambda: throttled_disk.restore(content, digest_of(b"bytes")),
        lambda: list(throttled_disk.walk(batch=10)),
        lambda: put(throttled_disk, missing, b"small"),
        lambda: put(throttled_disk, missing, bytes(9 * MIB)),
    ]
    for request in requests:
        with pytest.raises(ObjectStoreThrottled, match=r"refuses more requests \(\w+: (503|429)"):
            request()
    proxy.refuse(FOR_EVER, refusal, only=lambda one: one.target.endswith("peerd-disk.json"))
    with pytest.raises(ObjectStoreThrottled):  # it is not known whether this is the right disk
        throttled_disk.open(missing)
    proxy.pass_all()
    assert opened.read(0, 5) == b"bytes"


def put(disk: ObjectDisk, content: ContentId, data: bytes) -> None:
    with disk.begin(content, len(data)) as writer:
        for at in range(0, len(data), MIB):
            writer.write(data[at : at + MIB])
        writer.publish(digest_of(data))


@pytest.mark.usefixtures("impatient")
def test_a_busy_object_store_is_there_and_one_behind_a_server_that_cannot_reach_it_is_not(
    throttled_disk: ObjectDisk, proxy: ThrottlingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "CHECK_EVERY", 0.0)
    proxy.refuse()
    with pytest.raises(DiskBusy):
        throttled_disk.check()
    looks = len(proxy.refused)
    with pytest.raises(DiskBusy):
        throttled_disk.check()
    assert len(proxy.refused) == looks, "it is not looked at again at once"
    monkeypatch.setattr(disk_module, "BUSY_FOR", 0.0)
    throttled_disk._busy = None
    proxy.refuse(FOR_EVER, Refusal(code=None))
    with pytest.raises(ObjectStoreUnreachable) as error:
        throttled_disk.check()
    assert not isinstance(error.value, DiskBusy)
    proxy.pass_all()
    throttled_disk.check()


@pytest.mark.slow
def test_a_look_whether_the_disk_is_there_ends_in_some_seconds_while_the_object_store_does_not_answer(
    throttled_disk: ObjectDisk, moto: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the folders of the node would not be reported in time, and seem to be away."""
    monkeypatch.setattr(disk_module, "CHECK_EVERY", 0.0)
    moto.pause()
    try:
        began = time.monotonic()
        with pytest.raises(DiskError):
            throttled_disk.check()
        assert time.monotonic() - began < 15
    finally:
        moto.resume()
