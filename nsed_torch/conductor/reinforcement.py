"""A Conductor learns by reinforcement: GRPO by TRL, workflows executed inside the reward function."""

import copy
import logging
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from torch import Tensor, nn

from nsed_torch.conductor.grpo import GRPO, log_probabilities, trl_arguments
from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.reward import Rewards, Rollout, Scored, near_duplicates, tally
from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import Decoding, GenerateRequest, Generation, Message, call_seed
from nsed_torch.engines.chat import Chat, merge_system
from nsed_torch.engines.decode_loop import Draft
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.execution import Execution
from nsed_torch.records.transcript import Task

LETTERS = 4  # per token, about
Write = Callable[[int, Mapping[str, Any]], None]
"""Takes a step, from 1, and one record."""


class TrainingQuestion(NamedTuple):
    """A task, who may be asked by which numbers, and the prompt that says so."""

    task: Task
    pool: tuple[str, ...]
    messages: tuple[Message, ...]


def questions(conductor: Conductor, tasks: Sequence[Task], settings: GRPO) -> list[TrainingQuestion]:
    """The questions of all steps: every task once before any comes again, each time with a pool of its own.

    Raises:
        ValueError: if there is no task, and as `Pools`.
    """
    asked = drawn_pools(conductor, tasks, settings.steps * settings.questions, seed=settings.seed)
    return [TrainingQuestion(task, pool, conductor.request(task, pool).messages) for task, pool in asked]


def drawn_pools(
    conductor: Conductor, tasks: Sequence[Task], count: int, *, seed: int
) -> list[tuple[Task, tuple[str, ...]]]:
    """So many questions and their pools, as for `questions`."""
    if not tasks:
        raise ValueError("expected tasks to learn on, got none: raise the benchmark's size or limit")
    asked: list[tuple[Task, tuple[str, ...]]] = []
    turn = 0
    while len(asked) < count:
        draw = random.Random(call_seed(seed, turn, "order"))  # noqa: S311 - variety, not secrecy
        order = draw.sample(tasks, len(tasks))
        asked += [(task, conductor.pool(task, call_seed(seed, turn, "pools"))) for task in order]
        turn += 1
    return asked[:count]


def with_signal(
    conductor: Conductor, tasks: Sequence[Task], rewards: Rewards, settings: GRPO, report: Callable[[str], None]
) -> list[Task]:
    """Those of `settings.sieve` tasks whose texts do not all come to the same, so that there is something to learn.

    A group of texts is drawn for each, with the pool of its first turn. What all texts get right, or none does, would
    move nothing. Ours; published: hard problems alone.

    Raises:
        ValueError: if no group differs.
    """
    engine = _policy(conductor)
    settings = replace(settings, steps=-(-settings.sieve // settings.questions), recursion=0.0)
    asked = questions(conductor, tasks, settings)
    rollouts = Rollouts(conductor, engine, asked, settings)
    found: dict[str, Task] = {}
    for step in range(settings.steps):
        first = step * settings.questions
        these = [one for one in asked[first : first + settings.questions] for _ in range(settings.rollouts)]
        texts = [text_of(engine.chat, draft.written) for draft in rollouts(step)]
        scored = rewards([Rollout(one.task, one.pool, text) for one, text in zip(these, texts, strict=True)])
        for place in range(0, len(these), settings.rollouts):
            if len({s.reward for s in scored[place : place + settings.rollouts]} - {None}) > 1:
                found[these[place].task.id] = these[place].task
        report(f"{len(found)} of {first + settings.questions} questions have a signal")
    if not found:
        raise ValueError(
            "grpo.sieve: expected texts that differ in what they come to, got none: raise it, or set it to 0"
        )
    return list(found.values())


def _policy(conductor: Conductor) -> TransformersEngine:
    """The engine of a Conductor that can learn."""
    engine, adapter = conductor.planner.engine(conductor.agent), conductor.agent.adapter
    if not isinstance(engine, TransformersEngine) or adapter is None:
        raise ValueError(
            f"expected a conductor with an adapter on a model in this process, got {type(engine).__name__} and "
            f"adapter {adapter}: give it one"
        )
    return engine


class TrainingCost(NamedTuple):
    """What a part of a run takes."""

    tokens: float  # read and written
    hours: float  # at given speeds
    price: float = 0.0  # US$ at the workers' own prices, without what the call log saves
    calls: float = 0.0  # of a model to write


def training_cost(
    asked: Sequence[TrainingQuestion],
    workers: Sequence[Agent],
    settings: GRPO,
    *,
    text_tokens: int,
    steps: float,
    speeds: Mapping[str, float],
) -> dict[str, TrainingCost]:
    """Tokens, hours and price of a training, estimated: "policy writes", "policy learns", "workers", and "all".

    A prompt of c characters counts as c / 4 tokens. Packed, the engine reads it once a group when texts are written,
    and once a chunk when they are learned from; otherwise once a text. A step of a workflow reads the question and
    half of the answers before it, and fills its worker's allowance, all workers alike. Equal calls are made once but
    counted each time, so a Conductor that repeats itself costs less. `text_tokens` of a Conductor's text and `steps` of
    a workflow (about 3 as published) are means; `speeds` are tokens per second: "read" of prompts, "written" of many
    answers at a time, "learned" in both passes.
    """
    texts = len(asked) * settings.rollouts
    prompt = fmean(sum(len(m.content) for m in one.messages) for one in asked) / LETTERS
    passes = texts / settings.chunk * min(settings.chunk, settings.questions) if settings.packed else texts
    read = prompt * (len(asked) if settings.packed else texts)
    written = float(texts * text_tokens)
    learned = prompt * passes + written
    question = fmean(len(one.task.question) for one in asked) / LETTERS
    answer = fmean(worker.decoding.max_new_tokens for worker in workers)
    calls = texts * steps
    heard = calls * (question + answer * (steps - 1) / 4)
    price = [(w.prompt_price * heard + w.completion_price * calls * answer) / 1e6 for w in workers]
    costs = {
        "policy writes": TrainingCost(
            read + written, (read / speeds["read"] + written / speeds["written"]) / 3600, calls=texts
        ),
        "policy learns": TrainingCost(learned, learned / speeds["learned"] / 3600),
        "workers": TrainingCost(
            heard + calls * answer,
            (heard / speeds["read"] + calls * answer / speeds["written"]) / 3600,
            fmean(price),
            calls,
        ),
    }
    return {**costs, "all": TrainingCost(*map(sum, zip(*costs.values(), strict=True)))}


class Rollouts:
    """Has the texts of a step written: `rollouts(step) -> list[Draft]`, group after group.

    Every text draws from a seed of its own: the step's, its place's. Of a group that looks back the first half are
    first texts; the text half a group behind each reads what that one came to, as in answering: mended where it can be,
    the default where not. All texts of a kind are written together.
    """

    def __init__(
        self, conductor: Conductor, engine: TransformersEngine, asked: Sequence[TrainingQuestion], settings: GRPO
    ) -> None:
        self.conductor, self.engine, self.asked, self.settings = conductor, engine, asked, settings
        self.decoding = Decoding(settings.max_new_tokens, settings.temperature, top_p=1.0)
        # Of the step written last: what the texts look back at, by place.
        self.previous: Mapping[int, Execution] = {}

    def __call__(self, step: int) -> list[Draft]:
        """The texts of a step, counted from 0."""
        settings = self.settings
        questions = self.asked[step * settings.questions : (step + 1) * settings.questions]
        asked = [question for question in questions for _ in range(settings.rollouts)]
        behind = {place: place - settings.rollouts // 2 for place in range(len(asked)) if self.looks_back(place)}
        jobs = self._write(step, {i: a.messages for i, a in enumerate(asked) if i not in behind})
        self.previous = self._came_to(behind, asked, jobs)
        further = {
            place: self.conductor.request(asked[place].task, asked[place].pool, before).messages
            for place, before in self.previous.items()
        }
        jobs |= self._write(step, further)
        return [jobs[place] for place in range(len(asked))]

    def looks_back(self, place: int) -> bool:
        """Whether the text at a step's place answers an earlier one."""
        group, within = divmod(place, self.settings.rollouts)
        return group < self.settings.recursed and within >= self.settings.rollouts // 2

    def weight(self, place: int) -> float:
        """What the reward of the text at a place counts."""
        looked_at = place // self.settings.rollouts < self.settings.recursed and not self.looks_back(place)
        return self.settings.first if looked_at else 1.0

    def _write(self, step: int, prompts: Mapping[int, tuple[Message, ...]]) -> dict[int, Draft]:
        if not prompts:
            return {}
        agent, places = self.conductor.agent, list(prompts)
        requests = []
        for place in places:
            seed = call_seed(self.settings.seed, step, place, "rollout")
            requests.append(GenerateRequest(agent.name, prompts[place], self.decoding, seed, agent.adapter))
        return {places[job.index]: job for done in self.engine.written(requests) for job in done}

    def _came_to(
        self, behind: Mapping[int, int], asked: Sequence[TrainingQuestion], jobs: Mapping[int, Draft]
    ) -> dict[int, Execution]:
        tasks, pools = [asked[place].task for place in behind], [asked[place].pool for place in behind]
        texts = [Generation(text_of(self.engine.chat, jobs[first].written), 0, 0) for first in behind.values()]
        plans = [
            self.conductor.read(text, workers=len(pool), further=False) for pool, text in zip(pools, texts, strict=True)
        ]
        came = self.conductor.follow(tasks, pools, plans, [None] * len(tasks)) if tasks else []
        return dict(zip(behind, came, strict=True))


def text_of(chat: Chat, ids: Sequence[int]) -> str:
    """What was written, without marks of its end."""
    text: str = chat.tokenizer.decode(ids, skip_special_tokens=True)
    return text.split(chat.stop, maxsplit=1)[0] if chat.stop else text


def train(
    conductor: Conductor,
    tasks: Sequence[Task],
    rewards: Rewards,
    folder: Path,
    *,
    settings: GRPO,
    resume: str | None = None,
    log: Write = lambda step, record: None,
    rollout_log: Write = lambda step, record: None,
) -> None:
    """Let a Conductor's adapter learn from what its workflows come to.

    Each step draws a group of texts per question, executes all workflows together, and moves the adapter towards texts
    better than their group. With `settings.recursion` some groups learn to look back as well (`Rollouts`). Workers may
    share the backbone: their adapters stay as they are. Checkpoints go to `folder`; resumed from its last one, of fewer
    steps than the settings have, a run of `packed` ends where a straight one does.

    `log` takes every step: `reward.tally`, tokens, loss, entropy (nats per token), gradient norm, rate, seconds; where
    several processes share a step, the first one's texts. `rollout_log` takes what became of every text, those of a
    step in one record.

    Raises:
        ValueError: if the model is none in this process, or has no adapter that could learn.
        ContextWindowError: if a prompt does not fit the model's window.
    """
    engine = _policy(conductor)
    engine.model.set_adapter(conductor.agent.adapter)
    asked = questions(conductor, tasks, settings)
    rollouts = Rollouts(conductor, engine, asked, settings)
    ledger = _Ledger(rewards, rollouts, log, rollout_log)
    rows = [{"prompt": _chat(engine.chat, a.messages), "row": i} for i, a in enumerate(asked)]
    with _quiet():
        trainer = _trainer(trl_arguments(engine, folder, settings), rows, rollouts, ledger)
        try:
            trainer.train(resume_from_checkpoint=resume)
        finally:
            engine.eval()


@dataclass
class _Ledger:
    """What the trainer asks for rewards, and tells of its steps."""

    score: Rewards
    drawn: Rollouts  # knows what texts of this step look back at
    log: Write
    rollout_log: Write
    step: dict[str, Any] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)

    def rewards(
        self, completion_ids: Sequence[Sequence[int]], row: Sequence[int], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        """What TRL asks of all texts of a step."""
        drawn, rollouts = self.drawn, []
        for place, (i, ids) in enumerate(zip(row, completion_ids, strict=True)):
            task, pool, _messages = drawn.asked[i]
            rollouts.append(Rollout(task, pool, text_of(drawn.engine.chat, ids), drawn.previous.get(place)))
        scored = self.score(rollouts)
        written = [len(ids) for ids in completion_ids]
        records = [_record(*one) for one in zip(rollouts, scored, written, strict=True)]
        self.rollout_log(trainer_state.global_step + 1, {"rollouts": records})
        self.step = {**tally(scored, drawn.settings.rollouts), "policy_tokens": sum(written)}
        return [None if s.reward is None else drawn.weight(i) * s.reward for i, s in enumerate(scored)]

    def keep(self, step: int, numbers: Mapping[str, Any]) -> None:
        """What TRL says at the end of a step."""
        now = time.perf_counter()
        known = {name: float(numbers[name]) for name in ("loss", "entropy", "grad_norm", "learning_rate")}
        cut = float(numbers["completions/clipped_ratio"])  # the share of texts that did not come to an end
        self.log(step, {**self.step, **known, "cut": cut, "seconds": now - self.start})
        self.start = now


def _record(rollout: Rollout, scored: Scored, written: int) -> dict[str, Any]:
    """What a log keeps of a text."""
    flow = scored.workflow
    return {
        "task": rollout.task.id,
        "pool": list(rollout.pool),
        "level": len(rollout.previous.levels) if rollout.previous else 0,
        "text": rollout.text,
        "reward": scored.reward,
        "reason": scored.reason,
        "steps": len(flow.steps) if flow else None,
        "topology": flow.topology() if flow else None,
        "workers": list(scored.workers),
        "near_duplicates": near_duplicates(flow) if flow else None,
        "tokens": written,
        "usage": asdict(scored.usage),
    }


def _chat(chat: Chat, messages: Sequence[Message]) -> list[dict[str, str]]:
    """A prompt as TRL takes it; what `Chat.text` makes of it is the same."""
    told = messages if chat.takes_system else merge_system(messages)
    return [{"role": m.role, "content": chat.neutralize(m.content)} for m in told]


def _trainer(arguments: Any, rows: Sequence[Mapping[str, Any]], rollouts: Rollouts, ledger: _Ledger) -> Any:
    """TRL's trainer; packed, the engine writes the texts and reads them for their probabilities."""
    from datasets import Dataset  # noqa: PLC0415 - heavy, and an extra
    from transformers import PrinterCallback, TrainerCallback  # noqa: PLC0415 - heavy
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 - heavy, and an extra

    engine, adapter, packed = rollouts.engine, str(rollouts.conductor.agent.adapter), rollouts.settings.packed
    tokenizer = copy.deepcopy(engine.chat.tokenizer)  # TRL changes its padding
    tokenizer.chat_template = engine.chat.template

    class Packed(GRPOTrainer):  # type: ignore[misc]
        def _get_per_token_logps_and_entropies(
            self, _: nn.Module, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *__: Any, **___: Any
        ) -> tuple[Tensor, Tensor, None]:
            seen = attention_mask.bool()
            return *log_probabilities(engine, adapter, input_ids, seen, logits_to_keep, self.temperature), None

    class StepNumbers(TrainerCallback):  # type: ignore[misc]
        def on_log(self, _: Any, state: Any, __: Any, **numbers: Any) -> None:
            if "loss" in numbers["logs"] and state.is_world_process_zero:
                ledger.keep(state.global_step, numbers["logs"])

    def draw(_: Any, trainer: Any) -> dict[str, Any]:
        engine.forget()  # a fused optimizer changes weights without a trace that the engine could see
        written = rollouts(trainer.state.global_step)
        return {
            "prompt_ids": [draft.prompt for draft in written],
            "completion_ids": [draft.written for draft in written],
            "logprobs": None,
        }

    trainer = (Packed if packed else GRPOTrainer)(
        model=engine.model,
        reward_funcs=ledger.rewards,
        args=arguments,
        train_dataset=Dataset.from_list([dict(row) for row in rows]),
        processing_class=tokenizer,
        callbacks=[StepNumbers()],
        rollout_func=draw if packed else None,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what TRL says of rollout functions, and of rewards that are None, text and all."""
    logger = logging.getLogger("trl.trainer.grpo_trainer")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*'rollout_func'")
            warnings.filterwarnings("ignore", message=r".*gradient_checkpointing", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)
