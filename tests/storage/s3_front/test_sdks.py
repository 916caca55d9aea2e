"""The SDKs of AWS for other languages, unmodified, against nodes: what they send that boto3 does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyarrow import fs

from peerd.doorbell.cluster_secret import derive_access_secret
from tests.storage.nodes import SECRET
from tests.storage.s3_front.conftest import S3Cluster
from tests.support.npm import install_packages

JAVASCRIPT = Path(__file__).parent / "javascript"
WITHIN = 100
MIB = 1024 * 1024


def test_the_sdk_for_cpp_writes_lists_reads_and_deletes(cluster: S3Cluster, s3: object) -> None:
    """It is in pyarrow, and in ClickHouse; each of its requests has the header x-amz-api-version."""
    key = cluster.key()
    files = fs.S3FileSystem(
        access_key=key.id,
        secret_key=derive_access_secret(SECRET, key.id),
        endpoint_override=cluster.a.url,
        region="us-east-1",
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    contents = {"films/2026/one ä.mov": b"bytes", "films/2026/big.mov": b"0123456789abcdef" * (11 * MIB // 16)}
    for path, content in contents.items():
        with files.open_output_stream(path, metadata={"Content-Type": "video/mp4"}) as stream:
            stream.write(content)
    listed = files.get_file_info(fs.FileSelector("films", recursive=True))
    assert {one.path: one.size for one in listed if one.is_file} == {path: len(contents[path]) for path in contents}
    for path, content in contents.items():
        with files.open_input_file(path) as file:
            assert (file.read(), file.read_at(3, 1)) == (content, content[1:4])
    files.move("films/2026/one ä.mov", "films/moved")
    files.delete_dir("films/2026")
    assert [one.path for one in files.get_file_info(fs.FileSelector("films", recursive=True))] == ["films/moved"]


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program of the test, and the SDK that it uses."""
    return install_packages(JAVASCRIPT, tmp_path_factory.mktemp("javascript"))


@pytest.mark.slow
def test_a_page_puts_by_a_url_that_the_sdk_for_javascript_has_presigned(
    cluster: S3Cluster, s3: object, javascript: Path
) -> None:
    """The SDK signs the checksum of an empty body into the URL, because it has no other when it makes the URL."""
    key = cluster.key()
    command = ["node", "presigned.mjs", cluster.a.url, key.id, derive_access_secret(SECRET, key.id)]
    done = subprocess.run(command, cwd=javascript, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.stdout.splitlines() == ["AAAAAA== 200 ", "200 video/mp4 bytes"], done.stdout + done.stderr
