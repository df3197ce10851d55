"""`nsed` as a file, for launchers that want one: `accelerate launch` and `torchrun`."""

import sys

from nsed_torch.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
