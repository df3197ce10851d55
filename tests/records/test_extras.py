"""What a message about a missing package asks for is what works where the library came from."""

from pathlib import Path

import pytest

from nsed_torch.records import extras
from nsed_torch.records.extras import install, missing


@pytest.mark.parametrize(
    ("folder", "extra", "command"),
    [
        ("a clone", "serve", "pip install -c 'THERE/constraints.txt' -e 'THERE[serve]'"),
        ("a clone", "lab", "pip install THERE/lab"),
        ("wheel", "serve", "pip install 'nsed_torch[serve]'"),
        ("wheel", "experts", "pip install nsed-torch-experts"),
    ],
)
@pytest.mark.parametrize("here", [True, False])
def test_a_clone_is_installed_from_its_folder_and_a_wheel_by_name(tmp_path, monkeypatch, folder, extra, command, here):
    place = tmp_path / folder
    place.mkdir()
    if folder == "a clone":
        for name in ("pyproject.toml", "constraints.txt"):
            (place / name).touch()
    monkeypatch.setattr(extras, "ROOT", place)
    monkeypatch.chdir(place if here else tmp_path)
    if here:
        command = command.replace("'THERE/constraints.txt'", "constraints.txt").replace("THERE", ".")
    there = command.replace("'THERE", f"'{place}").replace(" THERE/lab", f" '{place}/lab'")
    assert install(extra) == there


def test_the_line_says_what_for(monkeypatch):
    monkeypatch.setattr(extras, "ROOT", Path("/nowhere"))
    expected = "expected matplotlib for plots, got no such package: pip install 'nsed_torch[report]'"
    assert missing("matplotlib", "plots", "report") == expected
