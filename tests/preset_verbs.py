"""The presets that ship, and the verb of each, read off the command in its first lines."""

import re

from nsed_torch.app.config.paths import conf_dir, options_of


def _verb(path):
    head = path.read_text().partition("\ndefaults")[0]
    return re.search(rf"nsed ([a-z-]+) (?:-m )?\+experiment={path.stem}\b", head)[1]


PRESETS = {path.stem: _verb(path) for path in sorted((conf_dir() / "experiment").glob("*.yaml"))}
INSTALLED = {path.stem: _verb(path) for path in options_of("experiment")}
"""With those of the laboratory."""
