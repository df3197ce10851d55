"""`nsed members` on a folder of traces, with and without a tuned cell."""

import pytest
from team_traces import team

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.records.files import read_json
from nsed_torch.records.trace import TraceWriter

QUICK = ("votes=[quadratic]", "draws=1")


@pytest.fixture
def traces(nsed):
    """Three agents, 20 tasks."""
    writer = TraceWriter(nsed.folder / "traces")
    writer.add(team(20, 1, 3))
    writer.finish(HashedEncoder(8).embed)
    return nsed.folder / "traces"


def saved(folder, names):
    ConsensusCell(8, len(names)).save_pretrained(folder, agent_names=list(names))


def test_tables_plots_and_numbers_are_written_and_printed(nsed, traces):
    out = nsed.ok("members", "data_dir=traces", "output_dir=out", *QUICK)
    assert out.strip().endswith("out/members.json")
    data = read_json(nsed.folder / "out/members.json")
    assert (data["tasks"], data["agents"], data["round"]) == (20, ["a", "b", "c"], 1)
    assert {row["vote"] for row in data["sizes"]} == {"quadratic", "commonest answer"}
    assert {row["kind"] for row in data["faulty"]} == {"silent", "random", "contrarian", "colluding"}
    assert data["provenance"]["config"]["votes"] == ["quadratic"]
    names = {path.stem for path in (nsed.folder / "out/tables").iterdir()}
    assert names == {"sizes", "additions", "faulty"}
    assert "Simulated" in out


def test_a_cell_from_disk_finds_its_agents_and_votes_beside_the_fresh_one(nsed, traces):
    saved(nsed.folder / "cell", "cab")  # another order of the same agents; untrained
    nsed.ok("members", "data_dir=traces", "output_dir=out", "cell=cell", *QUICK)
    data = read_json(nsed.folder / "out/members.json")
    rows = {
        vote: [{**row, "vote": ""} for key in ("sizes", "faulty") for row in data[key] if row["vote"] == vote]
        for vote in ("quadratic", "tuned", "commonest answer")
    }
    assert rows["tuned"] == rows["quadratic"] != rows["commonest answer"]
    assert data["cell"] == ConsensusCell.from_pretrained(nsed.folder / "cell", agents="abc").fingerprint()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "expected traces, got no folder: pass data_dir=<folder of nsed collect or nsed evaluate>"),
        (["data_dir=nowhere"], "nowhere/traces.jsonl: cannot be read"),
        (
            ["data_dir=traces", "round=7"],
            "expected a round that was held, 1 to 1, got 7",
        ),
        (["data_dir=traces", "votes=[cubic]"], "votes: expected names out of quadratic"),
        (["data_dir=traces", "core=4"], "core: expected 1 to 3 agents, got 4"),
        (["data_dir=traces", "cell=other"], "other/config.json: expected different agents out of a, b, got a, b, c"),
        (["data_dir=traces", "cell=wide"], "expected embeddings of width 5, got 8: build the cell for it"),
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, traces, arguments, line):
    saved(nsed.folder / "other", "ab")
    ConsensusCell(5, 3).save_pretrained(nsed.folder / "wide", agent_names=["a", "b", "c"])
    assert nsed.fault("members", *arguments).startswith(line)
