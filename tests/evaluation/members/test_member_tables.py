"""A whole study as JSON, tables and plots."""

import json
import re

import pytest
from polls import drawn

from nsed_torch.evaluation.members.faulty_members import KINDS, most_faulty
from nsed_torch.evaluation.members.member_tables import MemberStudy, plot_faulty, sheets
from nsed_torch.evaluation.members.sub_teams import rules
from nsed_torch.evaluation.statistics import plain


def whole(tasks, **options):
    n = len(tasks.agents)
    return MemberStudy.of(tasks, rules(4, n + most_faulty(n), ["quadratic"]), draws=1, **options)


@pytest.fixture(scope="module")
def found():
    return whole(drawn(30, agents=3))


def test_it_is_json_and_the_same_each_time(found):
    data = plain(found)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data) == {"tasks", "agents", "sizes", "additions", "faulty", "gains", "correlations"}
    assert data == plain(whole(drawn(30, agents=3)))
    assert {row["vote"] for row in data["gains"]} == {"quadratic"}


def test_sheets_hold_what_the_study_does_and_say_what_is_simulated(found):
    tables = {sheet.name: sheet for sheet in sheets(found)}
    assert set(tables) == {"sizes", "additions", "faulty", "gains", "correlations"}
    for sheet in tables.values():
        assert len({len(row) for row in sheet.rows}) == 1
        lines = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
        assert len(lines) == len(sheet.rows) + 1
        assert sheet.terminal().row_count == len(sheet.rows) - 1
    assert len(tables["faulty"].rows) == 1 + len(KINDS) * (most_faulty(3) + 1)
    assert "Simulated members" in tables["faulty"].markdown()
    best = next(row for row in found.sizes if row.size == 2)
    assert any(", ".join(best.best.agents) in cell for row in tables["sizes"].rows for cell in row)


def test_names_are_data(found):
    odd = drawn(12, agents=3)
    odd = type(odd)(**{**vars(odd), "agents": ("a|b", "[bold]x[/bold]", "c\nd")})
    for sheet in sheets(whole(odd)):
        body = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in body}) == 1


def test_what_faulty_members_do_is_drawn(found, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    plot_faulty(found, tmp_path / "faulty.png")
    assert (tmp_path / "faulty.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
