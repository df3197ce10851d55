"""Train judges on recorded answers: `python scripts/train_judges.py ...` is `nsed train-judges ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["train-judges", *sys.argv[1:]]))
