"""Weights as they travel, made into folders that transformers loads: wheels unzipped as data, GGUF converted."""

import hashlib
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import torch

DATA_FILES = ("*.safetensors", "*.json", "*.txt", "*.jinja", "tokenizer.model")
"""All that is ever taken for a model folder: no pickles, no code."""


class ChecksumError(ValueError):
    """A download is not the file that was pinned."""


class DownloadError(RuntimeError):
    """A wheel could not be downloaded."""


@dataclass(frozen=True)
class Wheel:
    """A wheel and the only bytes it may have.

    Args:
        requirement: "name==version".
        sha256: of the wheel file, 64 hexadecimal digits.

    Raises:
        ValueError: if either has another form.
    """

    requirement: str
    sha256: str

    def __post_init__(self) -> None:
        # The pattern also keeps a requirement from being read as an option of pip.
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[\w.!+]+", self.requirement):
            raise ValueError(f"wheel: expected a requirement 'name==version', got {self.requirement!r}")
        _check_sum(self.requirement, self.sha256)


@dataclass(frozen=True)
class PackagedWeights:
    """Weights that travel in wheels.

    Args:
        wheels: where the members lie.
        members: one folder inside a wheel that is a ready model folder, or the files that, one after another, are
            one GGUF.
        sha256: of that GGUF; None where the wheels' own sums are enough.

    Raises:
        ValueError: if there is no wheel or no member, or the sum is malformed.
    """

    wheels: Sequence[Wheel]
    members: Sequence[str]
    sha256: str | None = None

    def __post_init__(self) -> None:
        # Hydra hands over what only looks like a Wheel; its text would name another cache folder.
        object.__setattr__(self, "wheels", tuple(Wheel(w.requirement, w.sha256) for w in self.wheels))
        object.__setattr__(self, "members", tuple(self.members))
        if not self.wheels or not self.members:
            raise ValueError("packaged weights: expected at least one wheel and one member, got none")
        if self.sha256 is not None:
            _check_sum("packaged weights", self.sha256)

    @property
    def revision(self) -> str:
        """Requirement and shortened sum of every wheel."""
        return " ".join(f"{wheel.requirement}#{wheel.sha256[:12]}" for wheel in self.wheels)


def _check_sum(owner: str, text: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"{owner}: expected sha256 as 64 lower-case hexadecimal digits, got {text!r}")


def is_data(name: str) -> bool:
    """Whether a file of this name may become part of a model folder."""
    return any(fnmatch(PurePosixPath(name).name, pattern) for pattern in DATA_FILES)


def fetch_wheel(wheel: Wheel, folder: Path) -> Path:
    """Download one wheel without its dependencies, with the user's own pip configuration, and check it.

    Args:
        wheel: which one.
        folder: an empty or new folder to put it in.

    Returns:
        The wheel file. Nothing of it was installed, imported or run.

    Raises:
        DownloadError: with pip's last line.
        ChecksumError: if it is another file than the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), wheel.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
    files = list(folder.glob("*.whl"))
    if done.returncode or len(files) != 1:
        last = (done.stderr.strip().splitlines() or ["it brought no wheel"])[-1]
        raise DownloadError(f"pip download {wheel.requirement}: {last.removeprefix('ERROR: ')}")
    _verify(wheel.requirement, files[0], wheel.sha256)
    return files[0]


def _verify(what: str, file: Path, expected: str) -> None:
    with file.open("rb") as opened:
        got = hashlib.file_digest(opened, "sha256").hexdigest()
    if got != expected:
        raise ChecksumError(
            f"{what}: expected sha256 {expected}, got {got}; nothing was kept: check your package index, or pin the "
            "new sum if you trust it"
        )


def unpack_wheels(package: PackagedWeights, files: Sequence[Path], folder: Path) -> Path | None:
    """Take the members out of wheels, as data.

    Args:
        package: what lies in the wheels.
        files: the wheels.
        folder: receives `model/`, or the GGUF.

    Returns:
        The GGUF if the members are one; None if they were a ready model folder.

    Raises:
        ValueError: if a member is missing, or would land outside its folder.
        ChecksumError: if the GGUF is another one than the pinned.
    """
    with ExitStack() as stack:
        wheels = [stack.enter_context(ZipFile(file)) for file in files]
        where = {name: wheel for wheel in wheels for name in wheel.namelist()}
        if len(package.members) == 1 and package.members[0] not in where:
            _unpack_folder(where, package.members[0].rstrip("/") + "/", folder / "model")
            return None
        if missing := [member for member in package.members if member not in where]:
            raise ValueError(
                f"{package.wheels[0].requirement}: expected member {missing[0]}, got none such: correct it"
            )
        gguf = folder / "model.gguf"
        with gguf.open("wb") as target:
            for member in package.members:
                with where[member].open(member) as source:
                    shutil.copyfileobj(source, target)
    if package.sha256 is not None:
        _verify(f"the GGUF in {package.wheels[0].requirement}", gguf, package.sha256)
    return gguf


def _unpack_folder(where: dict[str, ZipFile], prefix: str, folder: Path) -> None:
    names = [name for name in where if name.startswith(prefix) and not name.endswith("/")]
    if not names:
        raise ValueError(f"expected folder {prefix} in the wheels, got none such: correct the members")
    for name in names:
        target = (folder / name.removeprefix(prefix)).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise ValueError(f"expected members inside {prefix}, got {name}: do not use this wheel")
        if is_data(name):
            target.parent.mkdir(parents=True, exist_ok=True)
            with where[name].open(name) as source, target.open("wb") as opened:
                shutil.copyfileobj(source, opened)


def convert_gguf(gguf_file: str | Path, folder: str | Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Unpack a GGUF into a folder of safetensors, configuration and tokenizer.

    Each block-quantized weight becomes the number it stands for, rounded to `dtype`: the model answers as the GGUF
    does, and is then free to be quantized another way. The folder is not written atomically; `resolve` sees to that.

    Args:
        gguf_file: one whole file, of an architecture whose GGUF form transformers knows.
        folder: created if it does not exist.
        dtype: of the saved weights.

    Raises:
        ValueError: if the file is no GGUF, is damaged, or has an architecture that transformers cannot read.
    """
    file = Path(gguf_file)
    with file.open("rb") as opened:
        magic = opened.read(4)
    if magic != b"GGUF":
        raise ValueError(f"{file}: expected a GGUF file, got one that starts with {magic!r}: fetch it again")
    with _quiet():
        try:
            model, tokenizer = load_gguf(file, dtype=dtype)
        except Exception as error:  # the readers underneath raise whatever a damaged file makes them stumble over
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"{file}: transformers cannot read this GGUF ({reason}): fetch it again") from error
        # GGUFs carry no tokenizer limit; without one nothing warns of a text longer than the model's positions.
        tokenizer.model_max_length = model.config.max_position_embeddings
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def load_gguf(gguf_file: Path, *, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load a GGUF's model, unpacked and rid of quantizer state so that it can be saved, and its tokenizer.

    Args:
        gguf_file: the file.
        dtype: of the parameters.

    Returns:
        The model in eval mode, and the tokenizer.
    """
    import transformers  # noqa: PLC0415 - heavy, and needed once a model

    source = {"pretrained_model_name_or_path": gguf_file.parent, "gguf_file": gguf_file.name}
    # Releases that can keep GGUF blocks packed must be told to unpack them; older ones always do.
    config = getattr(transformers, "GgufConfig", None)
    unpack = {} if config is None else {"quantization_config": config(dequantize=True)}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(**source, **unpack, dtype=dtype)
    # What is left of the quantizer would make `save_pretrained` refuse.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model, transformers.AutoTokenizer.from_pretrained(**source)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars and advice meant for other callers out of the user's terminal."""
    from transformers.utils import logging  # noqa: PLC0415

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # The GGUF reader draws its bar with plain tqdm, which only a redirected stream silences.
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
