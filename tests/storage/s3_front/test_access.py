"""What is refused: wrong secrets, keys that are not valid, files of others, and malformed requests."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from typing import Any

import httpx
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from peerd.domain.access import FileAccessKey, FileRights
from peerd.doorbell.cluster_secret import derive_access_secret
from peerd.storage.transfer.node_signature import HEADER, NodeSigner
from peerd.store import tokens
from peerd.store.schema.tables import file_access_keys
from peerd.store.schema.types import seconds_from_now
from tests.storage.nodes import SECRET
from tests.storage.s3_front.conftest import S3Cluster
from tests.storage.s3_front.test_objects import error_of

DENIED = ("AccessDenied", 403)


def test_a_wrong_secret_an_unknown_key_and_none_are_refused(cluster: S3Cluster, s3: Any) -> None:
    s3.put_object(Bucket="films", Key="f", Body=b"x")
    key = cluster.key()
    others = derive_access_secret("the secret of another cluster", key.id)
    client = cluster.client(key=key, aws_secret_access_key=others)
    assert error_of(client.get_object, Bucket="films", Key="f") == ("SignatureDoesNotMatch", 403)
    assert error_of(client.put_object, Bucket="films", Key="f", Body=b"y") == ("SignatureDoesNotMatch", 403)
    for name in ("PEERDNONE", "PEERD' OR '1'='1", "P" * 200):
        client = cluster.client(key=key, aws_access_key_id=name)
        assert error_of(client.list_buckets) == ("InvalidAccessKeyId", 403)
    for path in ("/", "/films", "/films/f", "/films?list-type=2"):
        answer = httpx.get(cluster.a.url + path)
        assert (answer.status_code, "<Code>AccessDenied</Code>" in answer.text) == (403, True)
    assert s3.get_object(Bucket="films", Key="f")["Body"].read() == b"x"
    clock = cluster.a.node.clock
    clock.synchronize(datetime.fromtimestamp(clock() + 7200, UTC), clock.steady())
    assert error_of(s3.list_buckets) == ("RequestTimeTooSkewed", 403)


def test_a_revoked_key_and_an_expired_one_are_refused_from_the_next_request_on(cluster: S3Cluster, s3: Any) -> None:
    revoked, expired = cluster.key(), cluster.key(expires_in=3600.0)
    clients = [cluster.client(key=key) for key in (revoked, expired)]
    url = clients[0].generate_presigned_url("list_objects_v2", {"Bucket": "films"})
    for client in clients:
        client.list_buckets()
    assert httpx.get(url).status_code == 200
    cluster.catalogue.store.run(tokens.revoke_access_key, revoked.id)
    is_it = file_access_keys.c.id == expired.id
    cluster.catalogue.change(file_access_keys, is_it, expires_at=seconds_from_now(-1.0))
    for client in clients:
        assert error_of(client.list_buckets) == ("InvalidAccessKeyId", 403)
    assert httpx.get(url).status_code == 403


def test_a_key_sees_only_its_buckets_and_prefixes(cluster: S3Cluster, s3: Any) -> None:
    s3.create_bucket(Bucket="music")
    for bucket in ("films", "music"):
        for key in ("own/a", "other/b"):
            s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    scoped = cluster.client(key=cluster.key(scopes=["films/own/"]))
    assert [one["Name"] for one in scoped.list_buckets()["Buckets"]] == ["films"]
    assert [one["Key"] for one in scoped.list_objects_v2(Bucket="films", Prefix="own/")["Contents"]] == ["own/a"]
    scoped.put_object(Bucket="films", Key="own/c", Body=b"x")
    own, other = {"Bucket": "films", "Key": "own/c"}, {"Bucket": "films", "Key": "other/b"}
    music = {"Bucket": "music", "Key": "own/a"}
    for refused in (other, music, {"Bucket": "none", "Key": "own/a"}):
        assert error_of(scoped.get_object, **refused) == DENIED
        assert error_of(scoped.put_object, **refused, Body=b"y") == DENIED
        assert error_of(scoped.delete_object, **refused) == DENIED
        assert error_of(scoped.create_multipart_upload, **refused) == DENIED
        assert error_of(scoped.copy_object, **own, CopySource=refused) == DENIED
        assert error_of(scoped.copy_object, **refused, CopySource=own) == DENIED
    for prefix in ("", "own", "other/"):
        assert error_of(scoped.list_objects_v2, Bucket="films", Prefix=prefix) == DENIED
        assert error_of(scoped.list_objects, Bucket="films", Prefix=prefix) == DENIED
        assert error_of(scoped.list_multipart_uploads, Bucket="films", Prefix=prefix) == DENIED
    for call in (scoped.create_bucket, scoped.delete_bucket):
        assert error_of(call, Bucket="films") == DENIED
    upload = s3.create_multipart_upload(**other)["UploadId"]
    assert error_of(scoped.upload_part, **other, UploadId=upload, PartNumber=1, Body=b"x") == DENIED
    assert error_of(scoped.upload_part, **own, UploadId=upload, PartNumber=1, Body=b"x") == ("NoSuchUpload", 404)
    deleted = scoped.delete_objects(Bucket="films", Delete={"Objects": [{"Key": key} for key in ("own/c", "other/b")]})
    assert [one["Key"] for one in deleted["Deleted"]] == ["own/c"]
    assert [(one["Key"], one["Code"]) for one in deleted["Errors"]] == [("other/b", "AccessDenied")]
    assert s3.get_object(**other)["Body"].read() == b"x"
    presigned = scoped.generate_presigned_url("get_object", music)
    assert httpx.get(presigned).status_code == 403


def test_a_key_has_rights_and_its_last_use_is_noted(cluster: S3Cluster, s3: Any) -> None:
    s3.put_object(Bucket="films", Key="f", Body=b"x")
    source, large = {"Bucket": "films", "Key": "f"}, os.urandom(6_000_000)
    reads, writes = (
        cluster.client(key=cluster.key(rights=rights, scopes=["films"]))
        for rights in (FileRights.READ, FileRights.WRITE)
    )
    reads.head_object(**source)
    reads.list_objects_v2(Bucket="films")
    writes.put_object(Bucket="films", Key="g", Body=b"x")
    writes.delete_object(Bucket="films", Key="g")
    assert error_of(writes.head_object, **source)[1] == 403, "the response to HEAD has no code"
    for client, call, more in (
        (writes, "list_objects_v2", {}),
        (reads, "put_object", {"Key": "g", "Body": large}),
        (reads, "delete_object", {"Key": "g"}),
        (reads, "copy_object", {"Key": "g", "CopySource": source}),
        (writes, "copy_object", {"Key": "g", "CopySource": source}),
    ):
        assert error_of(getattr(client, call), Bucket="films", **more) == DENIED, call
    url = reads.generate_presigned_url("put_object", source)
    assert "<Code>AccessDenied</Code>" in httpx.put(url, content=large).text, "the answer comes before the body is sent"
    key = cluster.key()

    def noted() -> FileAccessKey:
        return cluster.catalogue.store.read(tokens.get_access_key, key.id)

    assert error_of(cluster.client(key=key, aws_secret_access_key="x").list_buckets)[1] == 403
    assert noted().last_used_at is None, "a wrong signature is no use"
    cluster.client(key=key).list_buckets()
    assert noted().last_used_at is not None


def test_a_node_outlives_hostile_requests_and_need_not_answer_s3(cluster: S3Cluster, s3: Any) -> None:
    node, options = cluster.a.node, cluster.a.node.options
    node.options = type(options)(disks=options.disks, url=options.url)
    assert error_of(s3.list_buckets)[1] == 403
    node.options = options
    host, port = cluster.a.url.removeprefix("http://").split(":")
    for head in (
        b"GET /films/%zz HTTP/1.1",
        b"GET /films?" + b"a=b&" * 3000 + b" HTTP/1.1",
        b"PUT /films/f?X-Amz-Signature=" + b"0" * 64 + b" HTTP/1.1\r\ncontent-length: 99999999999999999999",
        b"GET /films/f HTTP/1.1\r\nx-amz-meta-a: " + b"\xff" * 40_000,
    ):
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(head + b"\r\nhost: x\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 4"), head[:40]
    bomb = b'<!DOCTYPE a [<!ENTITY b "c">]><Delete><Object><Key>&b;</Key></Object></Delete>'
    key = cluster.key()
    for body, code in ((bomb, "MalformedXML"), (b"<Delete>" + b" " * 9_000_000, "MaxMessageLengthExceeded")):
        request = AWSRequest("POST", f"{cluster.a.url}/films", params={"delete": ""})
        S3SigV4QueryAuth(Credentials(key.id, derive_access_secret(SECRET, key.id)), "s3", "us-east-1").add_auth(request)
        assert f"<Code>{code}</Code>" in httpx.post(request.prepare().url, content=body).text
    s3.list_buckets()
    assert "Traceback" not in repr(cluster.a.events)


def test_a_request_that_only_pretends_to_be_relayed_is_refused(cluster: S3Cluster, s3: Any) -> None:
    url = s3.generate_presigned_url("list_objects_v2", {"Bucket": "films"})
    target = url.removeprefix(cluster.a.url)
    clock = cluster.a.node.clock
    wrong = NodeSigner("the secret of another cluster", clock).headers("GET", cluster.a.url, target, {})
    for headers in (wrong, {HEADER: "x"}):
        answer = httpx.get(url, headers=headers)
        assert (answer.status_code, "<Code>AccessDenied</Code>" in answer.text) == (403, True)
    right = NodeSigner(SECRET, clock).headers("GET", cluster.a.url, target, {})
    assert httpx.get(url, headers=right).status_code == 200
    of_node = NodeSigner(SECRET, clock).headers("GET", cluster.a.url, "/films", {})
    assert httpx.get(cluster.a.url + "/films", headers=of_node).status_code == 404
