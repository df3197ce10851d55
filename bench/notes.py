"""What a round costs where notes stand side by side: a kept note is read once. Measured in a fresh process, `work`."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch

from bench.memory import TASK, compared, forget_peak, peak, run
from bench.requests import unstoppable
from bench.timing import Measurement
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding, GenerateRequest
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell, Observer
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.packing.attention import ForestPlan
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.weights import Weights
from nsed_torch.parts.rating_modes import AgreementRating
from nsed_torch.records.transcript import Round, Task

NOTED = 256
"""Rounds of a deliberation."""


def notes_lines(backbone: Mapping[str, Any]) -> list[Measurement]:
    """What a further round costs where notes stand side by side (`protocol.memory=beside`).

    Tokens of prompts that a late round reads (the median of the last half) against the most that it should: those of
    its question and its new notes. And the peak of memory after all rounds against that after two.
    """
    found = run({"backbone": {**backbone, "quantization": "none"}, "rounds": NOTED}, "bench.notes")
    late = slice(len(found["read"]) // 2, None)
    read, new = (tuple(map(float, found[name][late])) for name in ("read", "new"))
    facts = {"least": min(read), "most": max(read), "kept_notes": found["kept"]}
    name = "notes side by side"
    cost = Measurement(f"{name}, a round's prompts", "read", "question and new notes", read, new, "tokens", facts)
    peaks = {len(found["peaks"]): found["peaks"][-1], 2: found["peaks"][1]}
    return [cost, *compared(name, dict(sorted(peaks.items())), found["loaded"])]


def work(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What one process does: load the `backbone`, then deliberate for `rounds`; as `of_notes`, and `loaded`."""
    backbone = dict(arguments["backbone"])
    engine = load_backbone(Weights(**backbone.pop("weights")), **backbone)
    loaded = peak()
    forget_peak()
    with unstoppable(engine):
        return {"loaded": loaded, **of_notes(engine, arguments["rounds"])}


def of_notes(engine: TransformersEngine, rounds: int) -> dict[str, Any]:
    """Two agents answer round after round, with eight notes side by side.

    Returns:
        For each round but the first: `read`, the tokens of prompts that went through the model; `new`, those of the
        question and of the notes that no earlier prompt had, as prompts say them; `peaks`, in MiB; `kept`, notes of the
        last prompt.
    """
    engine.lookup_tokens = 0
    agents = [Agent(f"agent{i}", "backbone", decoding=Decoding(max_new_tokens=16)) for i in range(2)]
    encoder = HashedEncoder()
    consensus = ConsensusCell(encoder.dim, len(agents), slots=8)
    asked: list[GenerateRequest] = []
    read, new, peaks, known = [0], [0], list[float](), set[str]()

    def count(_: Any, __: Any, kwargs: Mapping[str, Any]) -> None:
        if isinstance(kwargs["nsed_plan"], ForestPlan):
            read[-1] += kwargs["input_ids"].numel()

    class Watched(Ensemble):
        def generate(self, requests: Any, *others: Any, **more: Any) -> Any:
            asked[:] = requests
            return super().generate(requests, *others, **more)

    class Watch(Observer):
        def on_round(self, task: Task, record: Round) -> None:
            told = {note.text for note in asked[0].notes}
            length = {text: len(engine.chat.encode(text)) for text in told}
            whole = len(engine.chat.ids(asked[0].messages))
            new[-1] = whole - sum(length.values()) + sum(length[text] for text in told - known)
            known.update(told)
            peaks.append(peak())
            read.append(0)
            new.append(0)

    team = Watched({"backbone": engine}, agents)
    cell = MacroRNNCell(team, encoder, consensus, rating=AgreementRating(), protocol=Protocol(memory="beside"))
    base = getattr(engine.model, "get_base_model", lambda: engine.model)()
    hook = base.register_forward_pre_hook(count, with_kwargs=True)
    with torch.no_grad():
        MacroRNN(cell, halting=FixedHalting(rounds))([TASK], observer=Watch())
    hook.remove()
    return {"read": read[1:-1], "new": new[1:-1], "peaks": peaks, "kept": len(asked[0].notes)}


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1]))))
