"""Writing many answers at once: rows that are finished leave the batch, rows that wait enter it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.agents.packing import PackedModel, Slots
from nsed_torch.agents.packing.forest import passes, shared_with_last
from nsed_torch.agents.requests import Decoding

REFILL = 8
"""New rows enter when one row in so many is free: a prefill of few tokens costs more per token."""

SPARE = 128
"""Columns for an answer that are taken at once; a longer answer takes more when it gets there."""

NUCLEUS_GUESS = 512
"""Tokens looked at first when the nucleus is cut; the whole vocabulary is sorted only where they fall short."""


@dataclass
class Draft:
    """One answer being written, as token ids, with a random stream of its own."""

    index: int  # of the request it answers
    prompt: list[int]
    adapter: str | None  # None for the bare backbone
    decoding: Decoding
    seed: int
    allowance: int  # tokens it may write
    written: list[int] = field(default_factory=list)
    readings: list[int] = field(default_factory=list)  # of the prompt
    seconds: float = 0.0  # its share of the time of all passes it took part in

    def __post_init__(self) -> None:
        self._stream = torch.Generator().manual_seed(self.seed)

    @property
    def position(self) -> int:
        """Where its last written token stands."""
        return len(self.prompt) + len(self.written) - 1

    @property
    def last(self) -> int:
        """The reading of its last written token: who read the prompt's end reads on."""
        return self.readings[-1] - self.prompt[-1] + self.written[-1]

    def uniform(self) -> float:
        """The next number of its stream, in [0, 1)."""
        return float(torch.rand((), generator=self._stream))


def decode(
    model: PackedModel, drafts: Sequence[Draft], *, max_rows: int, pass_tokens: int, ended: Callable[[Draft], bool]
) -> Iterator[list[Draft]]:
    """Write all answers, those with the largest allowances first, and hand them out as they end.

    Up to `max_rows` answers are written at once, up to `pass_tokens` of prompts read in a pass; `ended` says whether
    the token just written was an answer's last.
    """
    for draft in drafts:
        draft.readings = model.readings(draft.prompt, draft.adapter)
    waiting = sorted(drafts, key=lambda draft: (-draft.allowance, draft.readings))
    width = max((len(draft.prompt) + min(draft.allowance, SPARE) for draft in drafts), default=0)
    slots = Slots(min(max_rows, len(drafts)), width)
    running: list[Draft] = []
    while waiting or running:
        room = slots.rows - len(running)
        if waiting and room * REFILL >= slots.rows:
            fresh = waiting[:room]
            del waiting[:room]
            shared = shared_with_last([draft.readings for draft in fresh])
            for few in passes([len(draft.prompt) for draft in fresh], pass_tokens, shared):
                entering = [fresh[i] for i in few]
                start = time.perf_counter()
                prompts, rows = (
                    [draft.readings for draft in entering],
                    range(len(running), len(running) + len(entering)),
                )
                draw(model.read(prompts, slots, rows), entering, start)
                running += entering
        else:
            start = time.perf_counter()
            last, positions = [draft.last for draft in running], [draft.position for draft in running]
            draw(model.step(last, positions, slots), running, start)
        done = _leave(running, slots, ended)
        if done:
            yield done


def draw(logits: Float[Tensor, "row token"], drafts: Sequence[Draft], start: float) -> None:
    """Write every draft's next token, given its row of logits, and charge it its share of the time since `start`.

    A row takes one uniform number per step and inverts its own truncated distribution with it, so the same seed and
    the same logits give the same token beside any neighbours.
    """
    logits = logits.float()
    decodings = [draft.decoding for draft in drafts]
    repeating = [i for i, draft in enumerate(drafts) if draft.written and draft.decoding.repetition_penalty != 1]
    if repeating:
        longest = max(len(drafts[i].written) for i in repeating)
        # A token named twice counts once, so a row is filled up with its own first token.
        written = [drafts[i].written + drafts[i].written[:1] * (longest - len(drafts[i].written)) for i in repeating]
        penalty = logits.new_tensor([decodings[i].repetition_penalty for i in repeating])
        logits = logits.clone()
        logits[repeating] = penalize(logits[repeating], torch.tensor(written, device=logits.device), penalty)
    tokens = sample(
        logits,
        logits.new_tensor([d.temperature for d in decodings]),
        logits.new_tensor([d.top_p for d in decodings]),
        logits.new_tensor([draft.uniform() for draft in drafts]),
    )
    drawn = tokens.tolist()  # waits for the device
    share = (time.perf_counter() - start) / len(drafts)
    for draft, token in zip(drafts, drawn, strict=True):
        draft.written.append(token)
        draft.seconds += share


def _leave(running: list[Draft], slots: Slots, ended: Callable[[Draft], bool]) -> list[Draft]:
    """Take finished rows out; the last row moves up into each gap."""
    done = [i for i, draft in enumerate(running) if ended(draft)]
    left = [running[i] for i in done]
    for i in reversed(done):
        last = running.pop()
        if i < len(running):
            slots.move(len(running), i, last.position)
            running[i] = last
    return left


def penalize(
    logits: Float[Tensor, "row token"], written: Int[Tensor, "row length"], penalty: Float[Tensor, " row"]
) -> Float[Tensor, "row token"]:
    """Divide positive logits of tokens already written by the penalty and multiply negative ones by it."""
    seen = logits.gather(1, written)
    factor = penalty[:, None]
    return logits.scatter(1, written, torch.where(seen > 0, seen / factor, seen * factor))


def sample(
    logits: Float[Tensor, "row token"],
    temperature: Float[Tensor, " row"],
    top_p: Float[Tensor, " row"],
    uniform: Float[Tensor, " row"],
) -> Int[Tensor, " row"]:
    """Invert each row's nucleus distribution at `uniform` in [0, 1); temperature 0 takes the likeliest token.

    Logits are float32, `top_p` is in (0, 1].
    """
    greedy = temperature == 0
    likeliest = logits.argmax(dim=-1)
    if bool(greedy.all()):
        return likeliest
    # The largest logit moves to 0, so that no temperature above 0 overflows. In place: this is a vocabulary a row.
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    mass = shifted.div_(torch.where(greedy, 1.0, temperature)[:, None]).exp_()
    top, order = mass.topk(min(NUCLEUS_GUESS, logits.shape[1]), dim=-1)
    whole = mass.sum(dim=-1, keepdim=True)
    share = top / whole
    drawn = invert(share, order, top_p, uniform)
    held = share.cumsum(dim=-1)
    short = (share.sum(dim=-1) < top_p) & ~greedy
    # Of everything, the likeliest tokens are mostly enough: a draw that falls among them needs no order of the others.
    among = short & (top_p >= 1) & (uniform < held[:, -1])
    if bool(among.any()):
        rank = (held[among] > uniform[among, None]).int().argmax(dim=-1)
        drawn[among] = order[among].gather(1, rank[:, None])[:, 0]
    short &= ~among
    # The two ways may order equal tokens differently: a row takes the second because of itself, not of a neighbour.
    if bool(short.any()):
        everything = (mass[short] / whole[short]).sort(dim=-1, descending=True)
        drawn[short] = invert(everything.values, everything.indices, top_p[short], uniform[short])
    return torch.where(greedy, likeliest, drawn)


def invert(
    top: Float[Tensor, "row rank"],
    order: Int[Tensor, "row rank"],
    top_p: Float[Tensor, " row"],
    uniform: Float[Tensor, " row"],
) -> Int[Tensor, " row"]:
    """The token of `order` at which the nucleus' cumulative mass exceeds `uniform` times its whole mass.

    `top` holds probabilities, largest first; the nucleus is the shortest prefix whose mass reaches `top_p`.
    """
    kept = torch.where(top.cumsum(dim=-1) - top < top_p[:, None], top, 0.0)
    cumulative = kept.cumsum(dim=-1)
    rank = (cumulative > uniform[:, None] * cumulative[:, -1:]).int().argmax(dim=-1)
    return order.gather(1, rank[:, None])[:, 0]
