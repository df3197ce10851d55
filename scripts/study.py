"""Run a list of commands and write its page: `python scripts/study.py ...` is `nsed study ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["study", *sys.argv[1:]]))
