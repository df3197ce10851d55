"""Learn from recorded rounds whom it pays to ask: `python scripts/fit_broker.py ...` is `nsed fit-broker ...`."""

import sys

from nsed_torch.cli import main

if __name__ == "__main__":
    sys.exit(main(["fit-broker", *sys.argv[1:]]))
