"""`nsed serve`: teams as models behind an OpenAI-compatible endpoint."""

import logging
import math
import os
import signal
import socket
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nsed_torch.app.build import build_rnn
from nsed_torch.app.config.settings import plain
from nsed_torch.app.door import composed
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.extras import missing

try:
    import uvicorn

    from nsed_torch.app.serve.app import LOOPBACK, Limits, application
    from nsed_torch.app.serve.batches import Batches
    from nsed_torch.app.serve.heads import timed_protocol
except ImportError as error:
    raise ValueError(missing("the packages fastapi and uvicorn", "a server", "serve", error)) from error

HEADERS_BYTES = 16_384


@verb("serve")
def main(cfg: DictConfig, run: VerbRun) -> None:
    """Build every model, then answer until SIGTERM or Ctrl-C, and finish what is there."""
    key = key_for(cfg.host, cfg.api_key_env)
    calls = None if cfg.calls is None else Path(cfg.calls).expanduser()
    with CallLog(calls):  # one that cannot be written is told now, and not to every client
        pass
    limits = dict(cfg.limits)
    queue = {name: limits.pop(name) for name in ("max_queue", "max_batch", "gather_s")}
    with bound(cfg.host, cfg.port) as place:  # before anything is loaded
        teams = build_teams(cfg.models, run)
        shown = f"[{cfg.host}]" if ":" in cfg.host else cfg.host
        where = f"http://{shown}:{place.getsockname()[1]}"
        run.report(f"serving {', '.join(teams)} at {where}; Ctrl-C finishes what runs and ends")
        listen(place, Batches(teams, **queue, calls=calls), Limits(**limits), key)


def key_for(host: str, api_key_env: str) -> str:
    """The key that clients must know: of an environment variable, "" where it is empty and nobody else can connect."""
    key = os.environ.get(api_key_env, "").strip() if api_key_env else ""
    if not key and host not in LOOPBACK:
        wanted = f"expected a key in the environment variable {api_key_env or '(none named)'} to listen at {host}"
        raise ValueError(f"api_key_env: {wanted}, got none: set it, or host=127.0.0.1")
    return key


def bound(host: str, port: int) -> socket.socket:
    """A place to listen at; connections are refused until somebody does. Port 0 is any that is free."""
    place = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((host, port))
    except (OSError, OverflowError) as error:
        place.close()
        raise ValueError(f"port: cannot listen at {host}:{port} ({error}): choose another port=...") from error
    return place


def build_teams(models: DictConfig, run: VerbRun) -> dict[str, MacroRNN]:
    """Every model under its name, `nsed/NAME`, built as `nsed deliberate` builds a team of these settings."""
    named = {str(name): node for name, node in models.items()}
    configs = {f"nsed/{name}": _composed(name, node) for name, node in named.items()}
    if not configs:
        raise ValueError("models: expected a model at least, got none: pass models.NAME={ensemble: demo}")
    teams = {}
    for name, cfg in configs.items():
        run.report(f"{name}:")
        with CallLog(None) as log:  # every batch gets its own
            teams[name] = build_rnn(cfg, log, run.report)
            teams[name].cell.encoder.embed([name])  # loads it, so that no client waits for that
    return teams


def _composed(name: str, node: Any) -> DictConfig:
    """The config of `nsed deliberate` with a model's settings."""
    given = plain(node, resolve=True)
    if not isinstance(given, dict):
        raise ValueError(f"models.{name}: expected settings of nsed deliberate, got {given!r}: pass ensemble=...")
    try:
        return composed(given)
    except ValueError as error:
        raise ValueError(f"models.{name}: {error}") from error


def listen(place: socket.socket, batches: Batches, limits: Limits, key: str) -> None:
    """Answer until SIGTERM or Ctrl-C; then nobody else is let in, and who was is answered."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    # The server hands the signals that ended it on to whoever handled them before, which would end the process.
    kept = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server_of(batches, limits, key).run([place])
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def server_of(batches: Batches, limits: Limits, key: str) -> uvicorn.Server:
    """What speaks HTTP, within the limits."""
    config = uvicorn.Config(
        application(batches, limits=limits, key=key),
        http=timed_protocol(limits.body_s),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # No limit of connections, for half-sent heads would use it up: the queue has one, which answers in words.
        h11_max_incomplete_event_size=HEADERS_BYTES,
        timeout_graceful_shutdown=math.ceil(limits.request_s),
    )
    return uvicorn.Server(config)
