"""Models of one tensor, in folders and in wheels that pip accepts."""

import hashlib
import zipfile

import torch
from safetensors.torch import save_file

from nsed_torch.engines.weights import Wheel

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "owner/tiny"


def model_folder(folder, value=1.0):
    """A folder that counts as a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    save_file({"w": torch.full((3,), value)}, folder / "model.safetensors")
    return folder


def write_wheel(folder, name, content):
    """A wheel that pip accepts; the pinned form of it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-1.0-py3-none-any.whl"
    meta = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as opened:
        for path, data in content.items():
            opened.writestr(path, data)
        opened.writestr(
            f"{meta}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: absent\n"
        )
        opened.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        opened.writestr(f"{meta}/RECORD", "")
    return Wheel(f"{name}==1.0", hashlib.sha256(file.read_bytes()).hexdigest())


def names(folder):
    """Everything below a folder."""
    return sorted(item.relative_to(folder).as_posix() for item in folder.rglob("*"))
