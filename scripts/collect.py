"""Record what a team says: `python scripts/collect.py ...` is `nsed collect ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["collect", *sys.argv[1:]]))
