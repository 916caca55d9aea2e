"""Access keys that are made by the command, or by a client, at served nodes: what they may do, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from peerd import Client, NotPermitted
from peerd.domain.access import Actor
from peerd.domain.file_errors import AccessKeyNotFound, InvalidFile, NoClusterSecret
from peerd.store.tokens import find_access_key
from tests.cli.conftest import Peerd
from tests.cli.conftest import peerd as peerd  # noqa: PLC0414 - pytest finds fixtures by their names here
from tests.storage.nodes import SECRET
from tests.storage.s3_front.conftest import S3Cluster
from tests.storage.s3_front.test_objects import error_of


@pytest.fixture
def client(cluster: S3Cluster) -> Iterator[Client]:
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        client.buckets.create("films")
        client.buckets.create("music")
        yield client


@pytest.fixture
def project(peerd: Peerd, cluster: S3Cluster, tmp_path: Path) -> Path:
    """A folder whose peerd.toml names the cluster."""
    url = cluster.catalogue.store.url.render_as_string()
    (tmp_path / "peerd.toml").write_text(f'[database]\nurl = "{url}"\n[cluster]\nsecret = "{SECRET}"\n')
    return tmp_path


def s3_of(cluster: S3Cluster, made: dict[str, Any], node: str = "a") -> Any:
    """boto3 with what the command has printed."""
    key = cluster.catalogue.store.read(find_access_key, made["id"])
    return cluster.client(node, key, aws_secret_access_key=made["secret"])


@pytest.mark.usefixtures("project", "client")
def test_a_key_of_the_command_works_at_every_node_until_it_is_revoked(peerd: Peerd, cluster: S3Cluster) -> None:
    made = peerd("files", "keys", "create", "ann", "--json").json
    limits = "--rights", "read", "--scope", "films/2026/", "--scope", "mus*"
    some = s3_of(cluster, peerd("files", "keys", "create", "bob", *limits, "--json").json)
    assert some.list_objects_v2(Bucket="films", Prefix="2026/")["KeyCount"] == 0
    assert error_of(some.list_objects_v2, Bucket="films")[0] == "AccessDenied"
    assert error_of(some.put_object, Bucket="music", Key="a", Body=b"")[0] == "AccessDenied"
    for node, other in ("ab", "ba"):
        s3_of(cluster, made, node).put_object(Bucket="films", Key=node, Body=b"the film")
        assert s3_of(cluster, made, other).get_object(Bucket="films", Key=node)["Body"].read() == b"the film"
    url = s3_of(cluster, made).generate_presigned_url("get_object", {"Bucket": "films", "Key": "a"})
    listed = peerd("files", "keys", "list", "--json").json
    assert {(one["name"], one["is_valid"], one["last_used_at"] is None) for one in listed} == {
        ("ann", True, False),
        ("bob", True, False),
    }
    assert made["secret"] not in str(listed), "it is shown once"
    assert "is revoked" in peerd("files", "keys", "revoke", made["id"]).out
    for node in "ab":
        assert error_of(s3_of(cluster, made, node).get_object, Bucket="films", Key="a")[0] == "InvalidAccessKeyId"
    assert "revoked" in peerd("files", "keys", "list").out
    assert httpx.get(url).status_code == 403, "a presigned URL ends with its key"
    assert "there is no access key 'PEERDX'" in peerd("files", "keys", "revoke", "PEERDX", status=1).err
    key_id, secret = (line.split()[-1] for line in peerd("files", "keys", "create", "ann").out.splitlines())
    s3_of(cluster, {"id": key_id, "secret": secret}).list_objects_v2(Bucket="films")


def test_a_client_makes_and_revokes_keys_and_some_are_refused(client: Client, cluster: S3Cluster) -> None:
    for wrong in ({"rights": "fly"}, {"scopes": "films"}, {"scopes": ["A"]}, {"expires_in": 0}, {"expires_in": "x"}):
        with pytest.raises(InvalidFile):
            client.files.keys.create("ann", **wrong)
    made = client.files.keys.create("ann", "read", scopes=["films"], expires_in="1h")
    assert (made.key.scopes, made.key.is_valid, made.key.expires_at is not None) == (("films",), True, True)
    assert asyncio.run(client.aio.files.keys.revoke(made.key.id)).is_valid is False
    with pytest.raises(AccessKeyNotFound):
        client.files.keys.revoke("PEERDX")
    operator = client.acting_as(Actor.with_role("ann", "operator"))
    for call in (operator.files.keys.list, lambda: operator.files.keys.create("ann")):
        with pytest.raises(NotPermitted, match="needs the right admin"):
            call()
    with Client(cluster.catalogue.store) as without, pytest.raises(NoClusterSecret):
        without.files.keys.create("ann")
    assert len(client.files.keys.list()) == 1
