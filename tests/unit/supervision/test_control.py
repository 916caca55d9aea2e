from __future__ import annotations

from pathlib import Path

import pytest

from peerd.supervision import control


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_folder_without_a_master_says_so(tmp_path: Path, folder: str) -> None:
    with pytest.raises(control.NotRunning, match="no node is running in"):
        control.status(tmp_path / folder)
    with pytest.raises(control.NotRunning):
        control.stop(tmp_path / folder)
