"""Writing many answers at once: rows that are finished leave the batch, rows that wait enter it.

A text that says what stood in it before is written several tokens a pass: what followed there is read along as a guess,
and holds as far as it is what the row writes anyway. So a guess never changes an answer (prompt lookup, Saxena 2023, a
kind of speculative decoding, Leviathan et al. 2023, arXiv 2211.17192; that a row's own random numbers decide is ours).

Samples of one prompt are one row until they differ: what they have in common is computed once.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.core.engine import Decoding
from nsed_torch.engines.packing.forest import passes, shared_with_last
from nsed_torch.engines.packing.heard import Span
from nsed_torch.engines.packing.model import PackedModel
from nsed_torch.engines.packing.slots import Slots

REFILL = 8
"""New rows enter when one row in so many is free: a prefill of few tokens costs more per token."""

SPARE = 128
"""Columns for an answer that are taken at once; a longer answer takes more when it gets there."""

LOOKED_UP = (3, 2)
"""Lengths of the ends of a text that are looked up in it; the longer one first."""

TRUSTED = 7
"""Tokens guessed at least: read along with others, one costs about a seventieth of a pass."""

READ_ALONG = 32
"""Tokens of a pass that guesses may bring it to: up to there a pass takes little longer with them."""

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
    earlier: Sequence[int] = ()  # what others wrote before, for guesses alone
    last: int = 0  # how many of these the answer is that came last
    written: list[int] = field(default_factory=list)
    readings: list[int] = field(default_factory=list)  # of the prompt
    spans: Sequence[Span] = ()  # notes of the prompt that are heard in part
    beside: bool = False  # whether they stand side by side
    seconds: float = 0.0  # its share of the time of all passes it took part in

    def __post_init__(self) -> None:
        self._stream = torch.Generator().manual_seed(self.seed)
        self._numbers: list[float] = []
        self._followed: dict[tuple[int, ...], int] = {}  # ends of the text so far -> where it went on
        self._known = 0  # places of the text that are in there
        self._trusted = TRUSTED  # tokens to guess
        # Place of the text that the next token may repeat; an answer may begin as the last one did.
        self._source: int | None = len(self.earlier) - self.last if self.last else None

    @property
    def position(self) -> int:
        """Where its last written token stands."""
        return len(self.prompt) + len(self.written) - 1

    def read(self, tokens: Sequence[int]) -> list[int]:
        """Readings of tokens that it writes: who read the prompt's end reads on."""
        return [self.readings[-1] - self.prompt[-1] + token for token in tokens]

    def uniform(self, ahead: int) -> float:
        """The number of its stream that the next token but so many takes, in [0, 1)."""
        while len(self._numbers) <= len(self.written) + ahead:
            self._numbers.append(float(torch.rand((), generator=self._stream)))
        return self._numbers[len(self.written) + ahead]

    def guess(self, most: int) -> list[int]:
        """Up to so many tokens that may come next: what followed where the text last said what it ends with.

        The text is the prompt and the answer so far, behind what was written `earlier`.
        Where more were right, twice as many are tried, and one more. An answer may begin as the last one did, and where
        a copy has come to a token that differs, it goes on behind that; two in a row end it.
        """
        most = min(most, max(self._trusted, TRUSTED), self.allowance - len(self.written) - 1)
        if most < 1 or self.decoding.repetition_penalty != 1:
            return []
        text = [*self.earlier, *self.prompt, *self.written]
        for place in range(self._known, len(text)):
            for length in LOOKED_UP:
                if place >= length:
                    self._followed[tuple(text[place - length : place])] = place
        self._known = len(text)
        longer, shorter = (self._followed.get(tuple(text[-length:])) for length in LOOKED_UP)
        self._source = next((place for place in (longer, self._source, shorter) if place is not None), None)
        if self._source is None:
            return []
        # A text that repeats its end goes on doing so.
        return [text[self._source + i % (len(text) - self._source)] for i in range(most)]

    def write(self, drawn: Sequence[int], guess: Sequence[int], ended: Callable[["Draft"], bool]) -> None:
        """Write what was drawn behind its last token and behind each token of its guess, as far as that was right."""
        for ahead, token in enumerate(drawn):
            self.written.append(token)
            if ended(self) or ahead == len(guess) or token != guess[ahead]:
                if self._source is not None:
                    self._source = self._source + ahead + 1 if ahead or self._trusted > 1 else None
                if guess:
                    self._trusted = 2 * ahead + 1
                return


class Twins:
    """Answers that are one computation as yet: the same prompt, read and drawn from alike, and the same text so far."""

    def __init__(self, drafts: list[Draft]) -> None:
        self.drafts = drafts

    @property
    def first(self) -> Draft:
        """One that stands for all."""
        return self.drafts[0]

    @classmethod
    def of(cls, drafts: Sequence[Draft]) -> list["Twins"]:
        """As few rows as there are prompts, and ways to draw; nothing is written yet."""
        alike: dict[tuple[object, ...], list[Draft]] = {}
        for draft in drafts:
            how = draft.decoding.temperature, draft.decoding.top_p, draft.decoding.repetition_penalty
            alike.setdefault((how, *draft.readings), []).append(draft)
        return [cls(twins) for twins in alike.values()]

    def parted(self) -> list["Twins"]:
        """A row for each text that they have written by now."""
        if len(self.drafts) == 1:
            return [self]
        texts: dict[tuple[int, ...], list[Draft]] = {}
        for draft in self.drafts:
            texts.setdefault(tuple(draft.written), []).append(draft)
        return [Twins(same) for same in texts.values()]


def decode(
    model: PackedModel,
    drafts: Sequence[Draft],
    *,
    max_rows: int,
    pass_tokens: int,
    lookup_tokens: int,
    ended: Callable[[Draft], bool],
) -> Iterator[list[Draft]]:
    """Write all answers, those with the largest allowances first, and hand them out as they end.

    Up to `max_rows` answers are written at once, up to `pass_tokens` of prompts read in a pass and up to
    `lookup_tokens` guessed a row; `ended` says whether the token just written was an answer's last.
    """
    for draft in drafts:
        draft.readings = model.readings(draft.prompt, draft.adapter, draft.spans, beside=draft.beside)
    waiting = sorted(drafts, key=lambda draft: (-draft.allowance, draft.readings))
    width = max((len(draft.prompt) + min(draft.allowance, SPARE) for draft in drafts), default=0)
    slots = Slots(min(max_rows, len(drafts)), width)
    running: list[Twins] = []
    while waiting or running:
        room = slots.rows - sum(len(row.drafts) for row in running)  # each answer may come to need a row
        if waiting and room * REFILL >= slots.rows:
            fresh = waiting[:room]
            del waiting[:room]
            shared = shared_with_last([draft.readings for draft in fresh])
            for few in passes([len(draft.prompt) for draft in fresh], pass_tokens, shared):
                start = time.perf_counter()
                entering = Twins.of([fresh[i] for i in few])
                prompts = [row.first.readings for row in entering]
                rows = range(len(running), len(running) + len(entering))
                draw(model.read(prompts, slots, rows), entering, [[]] * len(entering), start, ended)
                running += entering
        else:
            start = time.perf_counter()
            most = min(lookup_tokens, READ_ALONG // len(running) - 1)
            firsts = [row.first for row in running]
            guesses = [draft.guess(most) for draft in firsts]
            readings = [draft.read([draft.written[-1], *guess]) for draft, guess in zip(firsts, guesses, strict=True)]
            prompts = [draft.readings for draft in firsts] if any(draft.spans for draft in firsts) else []
            logits = model.step(readings, [draft.position for draft in firsts], slots, prompts)
            draw(logits, running, guesses, start, ended)
        done = _leave(running, slots, ended)
        _part(running, slots)
        if done:
            yield done


def draw(
    logits: Float[Tensor, "place token"],
    rows: Sequence[Twins],
    guesses: Sequence[Sequence[int]],
    start: float,
    ended: Callable[[Draft], bool],
) -> None:
    """Write every draft's next tokens, and charge it its share of the time since `start`.

    There is a row of logits behind each row's last token and behind each of its guess, row by row. A token takes one
    uniform number of the draft's and inverts its own truncated distribution with it, so the same seed and the same
    logits give the same token beside any neighbours and with any guess.
    """
    logits = logits.float()
    places = [row.first for row, guess in zip(rows, guesses, strict=True) for _ in range(len(guess) + 1)]
    # Rows with a penalty guess nothing, so what they wrote is all that counts.
    repeating = [i for i, draft in enumerate(places) if draft.written and draft.decoding.repetition_penalty != 1]
    if repeating:
        texts = [places[i].written for i in repeating]
        longest = max(map(len, texts))
        # A token named twice counts once, so a row is filled up with its own first token.
        written = [text + text[:1] * (longest - len(text)) for text in texts]
        penalty = logits.new_tensor([places[i].decoding.repetition_penalty for i in repeating])
        logits = logits.clone()
        logits[repeating] = penalize(logits[repeating], torch.tensor(written, device=logits.device), penalty)
    draws, place = [], 0
    for row, guess in zip(rows, guesses, strict=True):
        draws += [(draft, place + ahead, ahead) for draft in row.drafts for ahead in range(len(guess) + 1)]
        place += len(guess) + 1
    tokens = sample(
        logits,
        logits.new_tensor([draft.decoding.temperature for draft in places]),
        logits.new_tensor([draft.decoding.top_p for draft in places]),
        logits.new_tensor([draft.uniform(ahead) for draft, _, ahead in draws]),
        torch.tensor([place for _, place, _ in draws], device=logits.device),
    )
    drawn = iter(tokens.tolist())  # waits for the device
    share = (time.perf_counter() - start) / sum(len(row.drafts) for row in rows)
    for row, guess in zip(rows, guesses, strict=True):
        for draft in row.drafts:
            draft.write(list(islice(drawn, len(guess) + 1)), guess, ended)
            draft.seconds += share


def _leave(running: list[Twins], slots: Slots, ended: Callable[[Draft], bool]) -> list[Draft]:
    """Take finished drafts out; the last row moves up into the gap of each that has none left."""
    done = [draft for row in running for draft in row.drafts if ended(draft)]
    for row in running:
        row.drafts = [draft for draft in row.drafts if not ended(draft)]
    origins = list(range(len(running)))
    for i in reversed([i for i, row in enumerate(running) if not row.drafts]):
        last, origin = running.pop(), origins.pop()
        if i < len(running):
            running[i], origins[i] = last, origin
    targets = [i for i, origin in enumerate(origins) if origin != i]
    if targets:
        slots.move([origins[i] for i in targets], targets, max(_position(running[i]) for i in targets))
    return done


def _part(running: list[Twins], slots: Slots) -> None:
    """Give drafts of a row that no longer agree rows of their own, behind all others, with what was read so far."""
    origins = []
    for i in range(len(running)):
        running[i], *others = running[i].parted()
        running += others
        origins += [i] * len(others)
    if origins:
        targets = range(len(running) - len(origins), len(running))
        slots.move(origins, targets, max(_position(running[i]) for i in targets))


def _position(row: Twins) -> int:
    return max(draft.position for draft in row.drafts)


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
    uniform: Float[Tensor, " draw"],
    rows: Int[Tensor, " draw"],
) -> Int[Tensor, " draw"]:
    """Invert the nucleus distribution of a row at each number in [0, 1); temperature 0 takes the likeliest token.

    Logits are float32, `top_p` is in (0, 1], `rows` says whose distribution each number inverts.
    """
    greedy = temperature == 0
    likeliest = logits.argmax(dim=-1)
    if bool(greedy.all()):
        return likeliest[rows]
    # The largest logit moves to 0, so that no temperature above 0 overflows. In place: this is a vocabulary a row.
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    mass = shifted.div_(torch.where(greedy, 1.0, temperature)[:, None]).exp_()
    top, order = mass.topk(min(NUCLEUS_GUESS, logits.shape[1]), dim=-1)
    whole = mass.sum(dim=-1, keepdim=True)
    share = top / whole
    drawn = invert(share[rows], order[rows], top_p[rows], uniform)
    held = share.cumsum(dim=-1)
    short = ((share.sum(dim=-1) < top_p) & ~greedy)[rows]
    # Of everything, the likeliest tokens are mostly enough: a draw that falls among them needs no order of the others.
    among = short & (top_p[rows] >= 1) & (uniform < held[rows, -1])
    if bool(among.any()):
        rank = (held[rows[among]] > uniform[among, None]).int().argmax(dim=-1)
        drawn[among] = order[rows[among]].gather(1, rank[:, None])[:, 0]
    short &= ~among
    # The two ways may order equal tokens differently: a row takes the second because of itself, not of a neighbour.
    if bool(short.any()):
        everything = (mass[rows[short]] / whole[rows[short]]).sort(dim=-1, descending=True)
        drawn[short] = invert(everything.values, everything.indices, top_p[rows[short]], uniform[short])
    return torch.where(greedy[rows], likeliest[rows], drawn)


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
