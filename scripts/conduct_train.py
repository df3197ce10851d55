"""Train a Conductor by reinforcement: `python scripts/conduct_train.py ...` is `nsed conduct train ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["conduct_train", *sys.argv[1:]]))
