"""The texts of a step of training: first ones, and ones that look back at what those came to."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nsed_torch.agents import Decoding, GenerateRequest, Generation, Message, TransformersEngine, call_seed
from nsed_torch.agents.chat import Chat
from nsed_torch.agents.decode_loop import Draft
from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.settings import GRPO
from nsed_torch.records import Execution, Task


class Asked(NamedTuple):
    """A question of the training: the task, who may be asked by which numbers, and the prompt that says so."""

    task: Task
    pool: tuple[str, ...]
    messages: tuple[Message, ...]


class Rollouts:
    """Has the texts of a step written: `rollouts(step) -> list[Draft]`, group after group.

    Every text draws from a seed of its own: the step's, its place's. Of a group that looks back the first half are
    first texts; the text half a group behind each reads what that one came to, as in answering: mended where it can be,
    the default where not. All texts of a kind are written together.

    Args:
        conductor: writes, and runs what is looked back at.
        engine: its model.
        asked: the questions of all steps.
        settings: how many, how long, how many look back.
    """

    def __init__(
        self, conductor: Conductor, engine: TransformersEngine, asked: Sequence[Asked], settings: GRPO
    ) -> None:
        self.conductor, self.engine, self.asked, self.settings = conductor, engine, asked, settings
        self.decoding = Decoding(settings.max_new_tokens, settings.temperature, top_p=1.0)
        self.previous: Mapping[int, Execution] = {}
        """Of the step written last: what the texts look back at, by place."""

    def __call__(self, step: int) -> list[Draft]:
        """Write.

        Args:
            step: counted from 0.
        """
        settings = self.settings
        questions = self.asked[step * settings.questions : (step + 1) * settings.questions]
        asked = [question for question in questions for _ in range(settings.rollouts)]
        behind = {place: place - settings.rollouts // 2 for place in range(len(asked)) if self.looks_back(place)}
        jobs = self._write(step, {i: a.messages for i, a in enumerate(asked) if i not in behind})
        self.previous = self._came_to(behind, asked, jobs)
        jobs |= self._write(
            step,
            {
                place: self.conductor.request(asked[place].task, asked[place].pool, before).messages
                for place, before in self.previous.items()
            },
        )
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
        requests = [
            GenerateRequest(
                agent.name,
                prompts[place],
                self.decoding,
                call_seed(self.settings.seed, step, place, "rollout"),
                agent.adapter,
            )
            for place in places
        ]
        return {places[job.index]: job for done in self.engine.written(requests) for job in done}

    def _came_to(
        self, behind: Mapping[int, int], asked: Sequence[Asked], jobs: Mapping[int, Draft]
    ) -> dict[int, Execution]:
        texts = [Generation(text_of(self.engine.chat, jobs[first].written), 0, 0) for first in behind.values()]
        mine = [asked[place] for place in behind]
        plans = [
            self.conductor.read(text, workers=len(a.pool), further=False) for a, text in zip(mine, texts, strict=True)
        ]
        tasks, pools = [a.task for a in mine], [a.pool for a in mine]
        came = self.conductor.follow(tasks, pools, plans, [None] * len(mine)) if mine else []
        return dict(zip(behind, came, strict=True))


def text_of(chat: Chat, ids: Sequence[int]) -> str:
    """What was written, without marks of its end."""
    text: str = chat.tokenizer.decode(ids, skip_special_tokens=True)
    return text.split(chat.stop, maxsplit=1)[0] if chat.stop else text
