"""Settings as they mean the same on every machine: without the user's home folder, and a name for all of them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nsed_torch.records.call_log import call_key


def config_sha256(config: Mapping[str, Any]) -> str:
    """Name a config by everything in it but `output_dir`, which changes no number, and the user's home folder.

    It is a `call_key` of the config, with the same errors.
    """
    return call_key(**{key: value for key, value in without_home(config).items() if key != "output_dir"})


def without_home(value: Any) -> Any:
    """Plain data with the user's home folder written as ~ wherever a path in a text begins with it."""
    if isinstance(value, str):
        home = os.path.expanduser("~")  # noqa: PTH111 - where nobody has a home, pathlib raises
        # A root is nobody's own; behind a path's own letters or a slash stands another folder of that name.
        pattern = rf"(?<![\w.~/\\-]){re.escape(home)}(?![\w.-])"
        return value if len(Path(home).parts) < 2 else re.sub(pattern, "~", value)
    if isinstance(value, Mapping):
        return {key: without_home(entry) for key, entry in value.items()}
    return [without_home(entry) for entry in value] if isinstance(value, list | tuple) else value
