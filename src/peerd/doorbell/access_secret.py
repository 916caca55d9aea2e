"""The secrets of access keys: derived from the cluster's secret, so that a stolen database opens nothing."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from typing import Final

_CONTEXT: Final = b"peerd s3 access key 1\n"


def derive_access_secret(cluster_secret: str, key_id: str) -> str:
    """The secret of an access key: 43 characters, which only who knows the cluster's secret can compute.

    Args:
        cluster_secret: [cluster] secret; when it is changed, the secrets of all access keys change.
        key_id: of the access key.

    >>> len(derive_access_secret("the secret of a cluster", "PEERDABCDEFGHIJKLMNO"))
    43
    """
    digest = hmac.digest(cluster_secret.encode(), _CONTEXT + key_id.encode(), "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
