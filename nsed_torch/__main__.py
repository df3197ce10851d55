"""`python -m nsed_torch <verb> [overrides]`."""

import sys

from nsed_torch.app.cli import main

sys.exit(main())
