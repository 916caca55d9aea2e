from __future__ import annotations

import pytest

from peerd.workers.video.sample_clip import generated_sample

CLIP_SECONDS = 5


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A short video: its path."""
    return str(generated_sample(tmp_path_factory.mktemp("clip"), CLIP_SECONDS).path)
