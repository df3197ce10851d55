"""A Conductor learns by reinforcement: GRPO by TRL, workflows executed inside the reward function."""

import copy
import logging
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nsed_torch.agents import Message, TransformersEngine, call_seed
from nsed_torch.agents.chat import Chat, merge_system
from nsed_torch.conductor.grpo import grpo_trainer
from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.reward import Rewards, Rollout, Scored, near_duplicates, tally
from nsed_torch.conductor.rollouts import Asked, Rollouts, text_of
from nsed_torch.conductor.settings import GRPO, trl_arguments
from nsed_torch.records import Task


class Log(Protocol):
    """Takes one record a step."""

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Keep a record."""
        ...


def questions(conductor: Conductor, tasks: Sequence[Task], settings: GRPO) -> list[Asked]:
    """The questions of all steps, in their order: every task once before any comes again, each time with another pool.

    Args:
        conductor: its pools are drawn anew each time, by seed, turn and task.
        tasks: with different ids.
        settings: how many, and the seed.

    Raises:
        ValueError: if there is no task, and as `Pools`.
    """
    if not tasks:
        raise ValueError("expected tasks to learn on, got none: raise the benchmark's size or limit")
    asked: list[Asked] = []
    turn = 0
    while len(asked) < settings.steps * settings.questions:
        draw = random.Random(call_seed(settings.seed, turn, "order"))  # noqa: S311 - variety, not secrecy
        for task in draw.sample(tasks, len(tasks)):
            pool = conductor.pools(conductor.executor.workers, task, call_seed(settings.seed, turn, "pools"))
            asked.append(Asked(task, pool, conductor.request(task, pool).messages))
        turn += 1
    return asked[: settings.steps * settings.questions]


def train(
    conductor: Conductor,
    tasks: Sequence[Task],
    rewards: Rewards,
    folder: Path,
    *,
    settings: GRPO,
    resume: str | None = None,
    logs: Sequence[Log] = (),
    rollout_logs: Sequence[Log] = (),
) -> None:
    """Let a Conductor's adapter learn from what its workflows come to.

    Each step draws a group of texts a question, executes all workflows together, and moves the adapter towards texts
    better than their group. With `settings.recursion` some groups learn to look back as well (`Rollouts`). Workers may
    share the backbone: their adapters stay as they are. Checkpoints go to `folder`; resumed from its last one, a run of
    `packed` ends where a straight one does.

    Args:
        conductor: its agent's adapter learns, a fresh one or one that knows the language already.
        tasks: with targets.
        rewards: of its texts, through the conductor's executor.
        folder: of checkpoints.
        settings: how.
        resume: a checkpoint to go on from, of fewer steps than these settings have.
        logs: hear every step: `reward.tally`, tokens, loss, entropy (nats a token), gradient norm, rate, seconds. Where
            several processes share a step, the first one's texts.
        rollout_logs: hear of every text what became of it, a step's texts in one record.

    Raises:
        ValueError: if the model is none in this process, or has no adapter that could learn.
        ContextWindowError: if a prompt does not fit the model's window.
    """
    engine, adapter = conductor.planner.engine(conductor.agent), conductor.agent.adapter
    if not isinstance(engine, TransformersEngine) or adapter is None:
        raise ValueError(
            f"expected a conductor with an adapter on a model in this process, got {type(engine).__name__} and "
            f"adapter {adapter}: give it one"
        )
    engine.model.set_adapter(adapter)
    asked = questions(conductor, tasks, settings)
    rollouts = Rollouts(conductor, engine, asked, settings)
    ledger = _Ledger(asked, rewards, rollouts, engine.chat, settings, logs, rollout_logs)
    rows = [{"prompt": _chat(engine.chat, a.messages), "row": i} for i, a in enumerate(asked)]
    with _quiet():
        trainer = grpo_trainer(
            engine,
            adapter,
            trl_arguments(engine, folder, settings),
            rows=rows,
            reward=ledger.rewards,
            told=ledger.told,
            write=rollouts if settings.packed else None,
            tokenizer=_tokenizer(engine.chat),
        )
        try:
            trainer.train(resume_from_checkpoint=resume)
        finally:
            engine.eval()


@dataclass
class _Ledger:
    """What the trainer asks for rewards, and tells of its steps.

    Args:
        asked: the questions, by row.
        score: the rewards.
        drawn: knows what texts of this step look back at.
        chat: decodes.
        settings: size of a group.
        logs: as in `train`.
        rollout_logs: as in `train`.
    """

    asked: Sequence[Asked]
    score: Rewards
    drawn: Rollouts
    chat: Chat
    settings: GRPO
    logs: Sequence[Log]
    rollout_logs: Sequence[Log]
    step: dict[str, Any] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)

    def rewards(
        self, completion_ids: Sequence[Sequence[int]], row: Sequence[int], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        """What TRL asks of all texts of a step."""
        mine = [self.asked[i] for i in row]
        texts = [text_of(self.chat, ids) for ids in completion_ids]
        earlier = self.drawn.previous
        rollouts = [
            Rollout(a.task, a.pool, text, earlier.get(place))
            for place, (a, text) in enumerate(zip(mine, texts, strict=True))
        ]
        scored = self.score(rollouts)
        written = [len(ids) for ids in completion_ids]
        told = [_told(*one) for one in zip(rollouts, scored, written, strict=True)]
        for log in self.rollout_logs:
            log.write(trainer_state.global_step + 1, {"rollouts": told})
        self.step = {**tally(scored, self.settings.rollouts), "policy_tokens": sum(written)}
        return [None if s.reward is None else self.drawn.weight(i) * s.reward for i, s in enumerate(scored)]

    def told(self, step: int, numbers: Mapping[str, Any]) -> None:
        """What TRL tells at the end of a step."""
        names = {"loss": "loss", "entropy": "entropy", "grad_norm": "grad_norm", "learning_rate": "learning_rate"}
        names["completions/clipped_ratio"] = "cut"  # the share of texts that did not come to an end
        now = time.perf_counter()
        line = {**self.step, **{name: float(numbers[key]) for key, name in names.items()}, "seconds": now - self.start}
        self.start = now
        for log in self.logs:
            log.write(step, line)


def _told(rollout: Rollout, scored: Scored, written: int) -> dict[str, Any]:
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


def _tokenizer(chat: Chat) -> Any:
    """One of TRL's own, with the engine's template: TRL changes its padding."""
    tokenizer = copy.deepcopy(chat.tokenizer)
    tokenizer.chat_template = chat.template
    return tokenizer


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
