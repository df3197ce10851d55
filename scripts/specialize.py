"""Train a LoRA specialist or a judge: `python scripts/specialize.py ...` is `nsed specialize ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["specialize", *sys.argv[1:]]))
