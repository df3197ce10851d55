"""Ask a team of models one question: `python scripts/deliberate.py ...` is `nsed deliberate ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["deliberate", *sys.argv[1:]]))
