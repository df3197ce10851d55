"""Fit vote, gate and trust to recorded answers: `python scripts/tune.py ...` is `nsed tune ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))
