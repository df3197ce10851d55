"""Turn a run folder into a page: `python scripts/report.py ...` is `nsed report ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
