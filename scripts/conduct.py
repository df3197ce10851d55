"""Have a workflow written and run for one question: `python scripts/conduct.py ...` is `nsed conduct ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["conduct", *sys.argv[1:]]))
