"""Get the weights of an ensemble ahead of time: `python scripts/fetch.py ...` is `nsed fetch ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["fetch", *sys.argv[1:]]))
