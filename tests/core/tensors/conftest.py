"""A cell on disk."""

import pytest
from saved_cells import NAMES, cell_of


@pytest.fixture
def folder(tmp_path):
    """A saved cell with everything that belongs to agents."""
    cell_of(calibration=True).save_pretrained(tmp_path / "cell", agent_names=NAMES)
    return tmp_path / "cell"
