"""What fills a folder says how much there is, while it does and at its end."""

import re
from threading import Event

from nsed_torch.records.pace import told


def test_it_says_how_much_there_is(tmp_path):
    said, heard = [], Event()

    def report(line):
        said.append(line)
        heard.set()

    with told("weights", report, tmp_path, every=0.001):
        (tmp_path / "a").write_bytes(bytes(2_000_000))
        heard.clear()
        assert heard.wait(30)
    assert re.fullmatch(r"weights: \d MB so far, \d+ s", said[0])
    assert re.fullmatch(r"weights: 2 MB in \d+ s", said[-1])
