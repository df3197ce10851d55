"""`nsed report` on what `nsed deliberate` wrote."""

import pytest


def test_a_run_becomes_a_page(nsed):
    _, transcript = nsed.deliberate("Is <b>17</b> larger than 71?", "rounds=2", folder="a run")
    out = nsed.ok("report", "run=a run")
    assert out.strip().endswith("a run/report.html")
    page = (nsed.folder / "a run/report.html").read_text()
    assert "Is &lt;b&gt;17&lt;/b&gt; larger than 71?" in page
    assert all(agent["name"] in page for agent in transcript["agents"])
    assert "<b>17</b>" not in page
    assert sorted(p.name for p in nsed.folder.iterdir()) == ["a run"]


FILES = "a transcript.json, a conduct.json or a traces.jsonl"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], f"expected a run folder, got none: pass run=<folder with {FILES}>"),
        (["run=nowhere"], f"nowhere: expected a run folder with {FILES}, found none"),
        (["run=broken"], "broken/transcript.json: not valid JSON"),
        (["runn=x"], "unknown setting 'runn'; did you mean 'run'?"),
        (["encoder=hashed"], "nsed report has no group 'encoder'; nsed report --help lists all"),  # other verbs have
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, arguments, line):
    (nsed.folder / "broken").mkdir()
    (nsed.folder / "broken/transcript.json").write_text("{")
    assert nsed.fault("report", *arguments).startswith(line)
