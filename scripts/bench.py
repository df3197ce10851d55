"""Measure the engine on this machine: `python scripts/bench.py ...` is `nsed bench ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
