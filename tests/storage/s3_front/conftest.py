"""Nodes that answer S3, and clients of it with access keys of the test."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from peerd.domain.access import FileAccessKey
from peerd.doorbell.cluster_secret import derive_access_secret
from peerd.store import tokens
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.store.file_steps import Catalogue

S3_DOMAIN = "s3.localhost"


class S3Cluster(StorageCluster):
    """Nodes that answer S3; the clients are closed at the end of the test."""

    def __init__(self, catalogue: Catalogue, nodes: list[ServedNode], clients: ExitStack) -> None:
        super().__init__(catalogue, nodes)
        self.clients = clients

    @property
    def a(self) -> ServedNode:
        return self.nodes["a"]

    def key(self, **more: Any) -> FileAccessKey:
        """A new access key."""
        return self.catalogue.store.run(tokens.create_access_key, "of a test", **more)

    def client(self, node: str = "a", key: FileAccessKey | None = None, **more: Any) -> Any:
        """boto3, with an access key for everything, or with this one."""
        key = key or self.key()
        values = {
            "aws_access_key_id": key.id,
            "aws_secret_access_key": derive_access_secret(SECRET, key.id),
            "region_name": "us-east-1",
            "endpoint_url": self.nodes[node].url,
            **more,
        }
        config = Config(signature_version="s3v4", retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
        client = boto3.client("s3", config=values.pop("config", config), **values)
        self.clients.callback(client.close)
        return client


@pytest.fixture
def cluster(tmp_path: Path, one_catalogue: Catalogue) -> Iterator[S3Cluster]:
    """Two nodes with a disk each, `a` and `b`, that answer S3."""
    with ExitStack() as served:
        nodes = [ServedNode(name, tmp_path, one_catalogue, s3=True, s3_domain=S3_DOMAIN) for name in "ab"]
        for node in nodes:
            served.enter_context(node.served())
        with ExitStack() as clients:
            yield S3Cluster(one_catalogue, nodes, clients)
        with warnings.catch_warnings():  # botocore leaves the connection open whose `Expect: 100-continue` was refused
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def s3(cluster: S3Cluster) -> Any:
    """A client of node `a`, and a bucket `films`."""
    client = cluster.client()
    client.create_bucket(Bucket="films")
    return client
