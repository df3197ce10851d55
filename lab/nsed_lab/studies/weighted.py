"""`python -m nsed_lab.studies.weighted FOLDER [pieces=16] [size=300] [learned=96] [seed=0] [slots=8] [draws=24] ...`.

Weighted memory. Notes are written by rule: of every piece one agent notes what matters, if anything does, the other a
sentence that nobody will ask for. So nothing is lost in noting, and what the last memory holds is the gate's to say.
The reader that ships answers from that memory, shown or weighted. Gates are fitted to other texts: by the reader's
answers alone, by labels (which note matters), not at all. A row an outcome, in `FOLDER/outcomes.jsonl`; goes on where
it stopped. With other slots than eight, the same gates are asked anew with so large a memory, into
`FOLDER/outcomes_SLOTS.jsonl`. With another rate (in thousandths), one gate is fitted by answers at that rate,
through `weighted` or `beside=1`, and asked other texts, into `FOLDER/outcomes_rate_RATE.jsonl`. With draws, one gate is
fitted to what notes are worth in so many random memories, and asked yet others, into `outcomes_draws_DRAWS.jsonl`; then
with `scale=64` it is asked texts of so many pieces, into `outcomes_scale_SCALE.jsonl`. With `reader=ADAPTER` another
one reads all of that, into `outcomes_draws_DRAWS_reader.jsonl`. With `profile=8` texts are hidden profiles, of four
agents who know something and so many who do not; gates learn from such ones too, into `outcomes_profile_8.jsonl`. With
`whole=ADAPTER` an adapter answers the texts of drawn memories with every piece in its prompt, `outcomes_whole.jsonl`.
"""

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose

from nsed_lab.generated_lessons import all_pieces
from nsed_lab.reading_tasks import PROFILE, ReadingTasks, reading_tasks
from nsed_torch.app.build import build_ensemble
from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.core import functional
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.engine import GenerateRequest, Note, call_seed
from nsed_torch.core.open_round import SlotText
from nsed_torch.core.prompts import fence, nonce, unfence, unseen
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.statistics import share, shown
from nsed_torch.parts.gates import LeakyGate, NoteGate
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.files import write_text
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.trace import TraceWriter, read_traces
from nsed_torch.records.transcript import Task, Transcript
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.rounds import replay
from nsed_torch.tuning.answer_fit import Closings
from nsed_torch.tuning.fitting import LBFGS
from nsed_torch.tuning.memory_fit import LEAKS, kept
from nsed_torch.tuning.trainer import CellTrainer, Schedule

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "needles": {"needles": 2},
    "chains": {},
    "hands": {"which": "last", "moves": 4},
}
SLOTS, ROOM = 8, 256
"""Of the memory: notes, and tokens in a prompt."""
NAMES = ("ada", "bo", *(f"agent {n}" for n in range(3, 13)))
WINDOW = 4096
"""Tokens that a whole text may have in a prompt."""
RATE = 50
"""Of a fit by answers, in thousandths."""


def texts(pieces: int, size: int, seed: int, profile: int = 0) -> ReadingTasks:
    """Fresh texts of four statements a piece; or hidden profiles with so many uninformed agents."""
    if profile:
        return reading_tasks({"hidden_profile": {"uninformed": profile}}, size=size, seed=seed)
    families = {name: {"pieces": pieces, "statements": 4, **options} for name, options in FAMILIES.items()}
    return reading_tasks(families, size=size, seed=seed)


def noted(
    graded: ReadingTasks, encoder: Encoder, folder: Path, agents: int = 2
) -> tuple[Episodes, dict[str, Transcript]]:
    """Recorded readings whose notes are written by rule; judges like what matters a little better."""
    told = {fact.text for facts in graded.facts.values() for fact in facts}

    def note(request: GenerateRequest) -> str:
        asked = request.messages[-1].content
        if "A piece to read now" not in asked:
            return "done"
        piece = asked.rpartition("A piece to read now")[2].split("\n<text-")[1].split("\n")[1]
        sentences = [s.strip().rstrip(".") + "." for s in piece.split(". ")]
        if len(sentences) == 1:  # of a hidden profile: nothing to choose from
            return sentences[0]
        facts = [s for s in sentences if s in told] or [f for f in told if f in piece]
        others = [s for s in sentences if s not in told] or ["nothing"]
        draw = random.Random(piece)  # noqa: S311 - a choice, not a secret
        chosen = draw.sample(others, min(2, len(others)))
        pair = [facts[0], chosen[0]] if facts else (chosen * 2)[:2]
        draw.shuffle(pair)
        return pair[NAMES.index(request.agent)]

    def judge(request: Any, candidate: str) -> float:
        likes = any(fact in candidate for fact in told)
        return random.Random(f"{request.seed} {candidate}").gauss(0.3 if likes else 0.0, 0.2)  # noqa: S311

    def bounded(request: Any, candidate: str) -> float:
        return max(-1.0, min(1.0, judge(request, candidate)))

    engine = ScriptedEngine(note, bounded)
    team = Ensemble({"rule": engine}, [Agent(name, "rule") for name in NAMES[:agents]])
    cell = MacroRNNCell(team, encoder, ConsensusCell(encoder.dim, agents, SLOTS).double())
    if not (folder / "embeddings.safetensors").exists():
        writer = TraceWriter(folder)
        writer.add(graded.traces(MacroRNN(cell, rounds=1)(list(graded.tasks)).transcripts))
        writer.finish(encoder.embed)
    told_of = {trace.transcript.task.id: trace.transcript for trace in read_traces(folder)}
    return load_traces(folder, reading=True), told_of


def memories(cell: ConsensusCell, episodes: Episodes, told: Mapping[str, Transcript]) -> dict[str, Any]:
    """Task id -> slots in words and their retention, after the last piece."""
    with torch.no_grad():
        output, state = replay(cell, episodes)
    width, found = episodes.proposal_mask.shape[2], {}
    origin = functional.held(output.source, width)
    for i, name in enumerate(episodes.ids):
        places = [p for p in origin[i].tolist() if p >= 0]
        rounds = told[name].rounds
        slots = [SlotText(rounds[p // width].proposals[p % width].text, "", p // width) for p in places]
        found[name] = slots, state.retention[i, : len(slots)].tolist()
    return found


def pieces_of(task: Task) -> list[SlotText]:
    """All of a text, as if each piece had been noted whole."""
    return [SlotText(piece, "", 0) for piece in all_pieces(task)]


def answer_whole(file: Path, team: MacroRNNCell, test: ReadingTasks) -> None:
    """Answers with every piece of a text in the prompt."""
    at_once = {task.id: (pieces_of(task), [1.0] * len(task.inputs)) for task in test.tasks}
    answer(file, team, test, {"all pieces": lambda: at_once}, WINDOW, once=("all pieces",))


def by_hand(graded: ReadingTasks) -> dict[str, Any]:
    """What matters alone: an oracle's memory."""
    return {
        t.id: ([SlotText(text, "", 0) for text in graded.remembered(t)], [1.0] * len(graded.remembered(t)))
        for t in graded.tasks
    }


def retrieved(graded: ReadingTasks, episodes: Episodes, told: Mapping[str, Transcript]) -> dict[str, Any]:
    """Two notes nearest to the question, then two nearest to the first of them: retrieval that asks twice."""
    found, width = {}, episodes.proposal_mask.shape[2]
    for i, name in enumerate(episodes.ids):
        vectors = torch.nn.functional.normalize(episodes.embeddings[i].flatten(0, 1), dim=-1)
        there = episodes.proposal_mask[i].flatten()
        first = (vectors @ torch.nn.functional.normalize(episodes.task[i], dim=-1)).masked_fill(~there, -2)
        best = first.topk(2).indices.tolist()
        second = (vectors @ vectors[best[0]]).masked_fill(~there, -2)
        second[best] = -2
        chosen = [*best, *second.topk(2).indices.tolist()]
        rounds = told[name].rounds
        slots = [SlotText(rounds[p // width].proposals[p % width].text, "", p // width) for p in chosen]
        found[name] = slots, [1.0] * len(slots)
    del graded
    return found


def asked(team: MacroRNNCell, task: Task, slots: Sequence[SlotText], retention: Sequence[float]) -> GenerateRequest:
    """What the reader is asked in the closing round."""
    weights = team._weights(slots, retention)
    shown_texts, agent = [text for text, _ in weights], team.ensemble.agents[0]
    mark = unseen(call_seed(team.seed, task.id, "propose"), shown_texts)
    chat = team.prompts.propose(task.question, memory=shown_texts, critiques=(), persona=agent.persona, seed=mark)
    notes = tuple(Note(fence(text, nonce(mark)), r) for text, r in weights)
    told = () if team.protocol.memory == "shown" else notes
    decoding = replace(agent.decoding, temperature=0.0)
    beside = team.protocol.memory == "beside" and bool(told)
    return GenerateRequest(agent.name, chat, decoding, 0, agent.adapter, notes=told, beside=beside)


def fitted(
    cell: ConsensusCell, data: Episodes, loss: str, closings: Closings | None, folder: Path, rate: int | None = None
) -> ConsensusCell:
    """A cell whose gate has learned, kept in a folder."""
    if (folder / "cell").is_dir():
        return ConsensusCell.from_pretrained(folder / "cell").double()
    one = cell.like(gate=NoteGate()).double()
    optimizer: Any = LBFGS
    schedule = Schedule(loss, epochs=60, checkpoint=1, draws=closings.draws if closings else 0)
    if rate:  # gradients pass through the models
        optimizer = partial(torch.optim.Adam, lr=rate / 1000)
        schedule = replace(schedule, epochs=4 if rate == RATE else 6, batch=8)
    CellTrainer(one, data, optimizer=optimizer, schedule=schedule, folder=folder, closings=closings).fit(resume=True)
    one.save_pretrained(folder / "cell")
    return one


def main(
    folder: Path,
    *,
    pieces: int = 16,
    size: int = 300,
    learned: int = 96,
    seed: int = 0,
    slots: int = SLOTS,
    rate: int = RATE,
    beside: int = 0,
    draws: int = 0,
    scale: int = 0,
    profile: int = 0,
    reader: str = "",
    whole: str = "",
) -> None:
    """Fit, answer, write every outcome, print shares with intervals."""
    with composing():
        room = "ensemble.engines.smollm2.prefix_tokens=65536"  # notes side by side are read once
        other = [f"ensemble.engines.smollm2.adapters.reader={reader or whole}"] if reader or whole else []
        cfg = compose("evaluate", ["ensemble=two_readers", "rating=agreement", "prompts.style=direct", room, *other])
    log = CallLog(folder / "calls.sqlite" if draws else None)  # what was read is not read again
    ensemble, encoder, prompts = build_ensemble(cfg.ensemble, log), instantiate(cfg.encoder), instantiate(cfg.prompts)
    team = MacroRNNCell(ensemble, encoder, ConsensusCell(encoder.dim, 2, SLOTS).double(), prompts=prompts)
    if whole:
        answer_whole(folder / "outcomes_whole.jsonl", team, texts(pieces, size, 7400))
        return
    asks, where = (7400, "fresh_draws") if draws else (7200, "test") if rate == RATE else (7300, "fresh")
    if scale:
        asks, where = 7500, f"scale_{scale}"
    if profile:
        asks, where = 7600, f"profile_{profile}"
    agents = PROFILE + profile if profile else 2
    learn = texts(pieces, learned, 7100 + seed, profile)
    test = texts(scale or pieces, size, asks + seed, profile)
    train, _ = noted(learn, encoder, folder / "learned", agents)
    episodes, told = noted(test, encoder, folder / where, agents)
    published = ConsensusCell(encoder.dim, agents, SLOTS).double()
    leak = max(LEAKS, key=lambda one: kept(published.like(gate=LeakyGate(one)), train).share.mean().item())
    cells: dict[str, ConsensusCell] = {
        "none": published.like(gate="none"),
        f"leak {leak}": published.like(gate=LeakyGate(leak)),
        "labels": fitted(published, train, "memory", None, folder / "labels"),
    }
    wide = ConsensusCell(encoder.dim, agents, slots).double()
    held: dict[str, Callable[[], dict[str, Any]]] = {
        name: partial(memories, wide.like(gate=cell.gate), episodes, told) for name, cell in cells.items()
    }
    outcomes, room = folder / ("outcomes.jsonl" if slots == SLOTS else f"outcomes_{slots}.jsonl"), ROOM * slots // SLOTS
    if draws:
        closings = Closings.of(team, [folder / "learned"], draws)
        own = f"draws_{draws}" + "_reader" * bool(reader)
        cell = fitted(published, train, "answer", closings, folder / f"answers_{own}")
        one = {f"answers (shown, {draws} draws)": partial(memories, wide.like(gate=cell.gate), episodes, told)}
        more = {"oracle": partial(by_hand, test)} if profile else {}
        once = (*one, *held) if scale or reader or profile else tuple(held)
        file = folder / f"outcomes_{f'scale_{scale}' if scale else where if profile else own}.jsonl"
        answer(file, team, test, one | held | more, room, once=once)
        return
    if rate != RATE:
        memory, where = ("beside", "_beside") if beside else ("weighted", "")
        closings = Closings.of(team.with_(protocol=Protocol(memory=memory)), [folder / "learned"])
        cell = fitted(published, train, "answer", closings, folder / f"answers_rate_{rate}{where}", rate)
        mine: dict[str, Callable[[], dict[str, Any]]] = {
            f"answers ({memory}, rate {rate / 1000})": partial(memories, wide.like(gate=cell.gate), episodes, told)
        }
        answer(folder / f"outcomes_rate_{rate}.jsonl", team, test, mine | held, room, once=tuple(held))
        return
    if slots == SLOTS:
        held |= {"oracle": partial(by_hand, test), "retrieval twice": partial(retrieved, test, episodes, told)}
        answer(outcomes, team, test, held, room)
    for memory in ("beside", "weighted") if slots == SLOTS else ("weighted", "beside"):
        closings = Closings.of(team.with_(protocol=Protocol(memory=memory)), [folder / "learned"])
        cell = fitted(published, train, "answer", closings, folder / f"answers_{memory}", rate)
        one = {f"answers ({memory})": partial(memories, wide.like(gate=cell.gate), episodes, told)}
        answer(outcomes, team, test, one, room)
    answer(outcomes, team, test, held, room)


def answer(
    file: Path,
    team: MacroRNNCell,
    test: ReadingTasks,
    held: Mapping[str, Callable[[], dict[str, Any]]],
    room: int,
    once: Sequence[str] = (),
) -> None:
    """Every memory of so many tokens, in every protocol or, `once`, shown alone, by the reader; a line a cell."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    done = {(row["gate"], row["memory"]) for row in rows}
    for name, make in held.items():
        for memory in ("shown", "weighted", "beside"):
            by_itself = name in ("oracle", "retrieval twice") or (room > ROOM and name.startswith(("none", "leak")))
            if (name, memory) in done or (memory != "shown" and (by_itself or name in once)):
                continue
            one, state = team.with_(protocol=Protocol(memory=memory, memory_tokens=room)), make()
            requests = [asked(one, task, *state[task.id]) for task in test.tasks]
            said = [unfence(generation.text) for generation in team.ensemble.generate(requests)]
            finals = [test.grader.extract(task, text) for task, text in zip(test.tasks, said, strict=True)]
            verdicts = test.grader.grade([(t, f or "") for t, f in zip(test.tasks, finals, strict=True)])
            for task, text, verdict in zip(test.tasks, said, verdicts, strict=True):
                right = verdict is Verdict.RIGHT
                row = {"gate": name, "memory": memory, "id": task.id, "said": text[:80], "right": right}
                rows.append(row | {"retention": [round(r, 4) for r in state[task.id][1]]})
            write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
            own = [row["right"] for row in rows if (row["gate"], row["memory"]) == (name, memory)]
            sys.stdout.write(f"{name:20} {memory:10} {shown(share(sum(own), len(own)))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    words = dict(word.split("=") for word in sys.argv[2:])
    settings: dict[str, Any] = {
        key: value if key in ("reader", "whole") else int(value) for key, value in words.items()
    }
    main(Path(sys.argv[1]), **settings)
