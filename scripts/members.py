"""Vote again on recorded rounds with other teams: `python scripts/members.py ...` is `nsed members ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["members", *sys.argv[1:]]))
