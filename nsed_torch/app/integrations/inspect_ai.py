"""A team in inspect_ai: the model `nsed/ENSEMBLE` and the solver `nsed_deliberate`, known by an entry point."""

import functools
import json
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nsed_torch.app.door import Door, cut, question_of
from nsed_torch.records.extras import missing
from nsed_torch.records.transcript import Transcript

try:
    import anyio
    from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
    from inspect_ai.solver import Generate, Solver, TaskState, solver
except ImportError as error:
    raise ImportError(missing("inspect_ai", "its model", "inspect", error)) from error


class Desk:
    """One thread that builds a team and asks it; what comes in meanwhile goes together in the next batch.

    Whoever shares a batch with a question that fails is asked alone. Equal questions of one id are asked once.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nsed")
        self._waiting: deque[tuple[str, str, Future[Transcript]]] = deque()
        self.door = self._thread.submit(Door, settings).result()

    async def ask(self, name: str, question: str) -> Transcript:
        """Deliberate on a question; the id is as for `Door.deliberate`."""
        mine: Future[Transcript] = Future()
        self._waiting.append((name, question, mine))
        self._thread.submit(self._answer)
        limiter = anyio.CapacityLimiter(1)  # who waits here takes no place of others
        transcript: Transcript = await anyio.to_thread.run_sync(mine.result, abandon_on_cancel=True, limiter=limiter)
        return transcript

    def close(self) -> None:
        """Let the thread go when it has answered."""
        self._thread.shutdown(wait=False)

    def _answer(self) -> None:
        """Answer all that wait; those of one id but different questions one after the other."""
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        while waiting:
            batch: dict[str, str] = {}
            now: list[tuple[str, str, Future[Transcript]]] = []
            later: list[tuple[str, str, Future[Transcript]]] = []
            for name, question, asker in waiting:
                known = batch.setdefault(name or question, question) == question
                (now if known else later).append((name, question, asker))
            told = self._settled(sorted({(name, question) for name, question, _ in now}))
            for name, question, asker in now:
                result = told[name, question]
                if isinstance(result, Transcript):
                    asker.set_result(result)
                else:
                    asker.set_exception(result)
            waiting = later

    def _settled(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Transcript | Exception]:
        try:
            return dict(zip(asked, self.door.deliberate(asked), strict=True))
        except Exception as error:  # who asked hears it
            if len(asked) == 1:
                return {asked[0]: error}
            return {key: value for one in asked for key, value in self._settled([one]).items()}


@modelapi(name="nsed")
class InspectModel(ModelAPI):  # type: ignore[misc]
    """A team that answers chats: `nsed/experts` is the ensemble of that name, model args are its other settings.

    What is written at which temperature are the agents' own settings; of a `GenerateConfig` the stop strings alone
    count. A question is named by its text, so that it has one answer, in every epoch. Tools are refused.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - as the package has it
        **settings: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self.desk = Desk({"ensemble": model_name, **settings})

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - as the package calls it
        tools: Sequence[Any],
        tool_choice: Any,
        config: GenerateConfig,
    ) -> ModelOutput:
        """The team's answer, up to the first stop string, and what all its calls took."""
        if tools:
            raise ValueError("expected no tools, for a team calls none: use a solver without them")
        transcript = await self.desk.ask("", question_of((message.role, message.text) for message in input))
        return _output(self.model_name, transcript, config.stop_seqs or ())

    def max_connections(self) -> int:
        """Questions at a time: they share batches."""
        return 64

    def close(self) -> None:
        """Let the team's thread go."""
        self.desk.close()


@solver  # type: ignore[untyped-decorator]
def nsed_deliberate(ensemble: str = "experts", **settings: Any) -> Solver:
    """Answers a sample by a deliberation, without the evaluation's model.

    A sample's id and epoch name its question, as in `nsed evaluate`. The whole transcript is in the sample's store,
    under `nsed`, and so in the log.

    Args:
        ensemble: the team's.
        settings: others of it, by dotted name.
    """
    desk = functools.cache(lambda: Desk({"ensemble": ensemble, **settings}))  # when the first sample comes

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        name = f"{state.sample_id}" if state.epoch == 1 else f"{state.sample_id}~{state.epoch}"
        question = question_of((message.role, message.text) for message in state.messages)
        transcript = await desk().ask(name, question)
        state.output = _output(ensemble, transcript, ())
        state.messages.append(state.output.message)
        state.store.set("nsed", json.loads(transcript.to_json()))
        return state

    return solve


def _output(model: str, transcript: Transcript, stops: Sequence[str]) -> ModelOutput:
    output = ModelOutput.from_content(f"nsed/{model}", cut(transcript.answer, stops))
    usage = transcript.usage
    output.usage = ModelUsage(
        input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens, total_tokens=usage.billed
    )
    convictions = [record.conviction for record in transcript.rounds]
    output.metadata = {"stop_reason": transcript.stop_reason, "convictions": convictions}
    return output
