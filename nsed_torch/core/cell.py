"""Deliberation on tensors, one round or a recorded sequence: the innermost of the three nested cells."""

import copy
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core import functional
from nsed_torch.core.election import ConsensusOutput, Prepared, RoundInput, Seats, check_round
from nsed_torch.core.functional.floats import finite
from nsed_torch.core.functional.tally import POOLINGS, author_weight
from nsed_torch.core.gate import ForgetGate, News, gated
from nsed_torch.core.memory import MemoryState, remember
from nsed_torch.core.named import NAMED, PARTS, part_named
from nsed_torch.core.pretrained import Pretrained
from nsed_torch.core.trust import Trust, trusted
from nsed_torch.core.vote import QuadraticVote, balloted


class ConsensusCell(Pretrained):
    """Ratings in, consensus and next memory out: `(embeddings, ratings, masks, answers, state) -> (output, state)`.

    A fresh cell reproduces the published protocol: signed quadratic vote, equal voters, winner by summed
    ballots. Classes of equal answers, trust, the softmax over supports, backing and the memory's recurrence are
    ours. Gradients cross rounds through the hidden state, which speaks into trust once its weight leaves zero: after
    one step of a plain training loop the gate has a gradient, with the line of the example below from the first.
    `agent_names`, None until somebody knows them, are saved along.

    Every parameter has a gradient, if of zero, wherever gradients are taken, as DistributedDataParallel wants it.

    Args:
        dim: width of the embeddings.
        agents: size of the pool that voters come from.
        slots: memory slots a task keeps.
        vote: ratings and mask to ballots: a name out of `core.named`, or anything that is called alike.
        gate: what slots keep and proposals enter with: likewise, or a module like `Gate`.
        trust: how much each voter's ballot weighs: a module like `Trust`, which is the default.
        calibration: ratings, mask and voters to the ratings that are voted on; as given if None.
        reading: what moves trust and support by what proposals say and by the task's category, a module like
            `parts.reading.Reading`; nothing if None.
        pooling: how proposals that say the same pool their support: mean, sum or logsumexp.

    Raises:
        ValueError: if a size is below 1, or a name or the pooling is unknown.

    Examples:
        >>> import torch
        >>> cell = ConsensusCell(dim=2, agents=3)
        >>> embeddings, task = torch.randn(1, 3, 2), torch.randn(1, 2)
        >>> ratings = torch.tensor([[[0.0, 0.5, 0.1], [0.2, 0.0, 0.9], [-0.4, 0.3, 0.0]]])
        >>> vote_mask = ~torch.eye(3, dtype=torch.bool)[None]  # nobody rates its own proposal
        >>> output, state = cell(embeddings, ratings, vote_mask, task)
        >>> output.winner.item()
        1
        >>> output, state = cell(embeddings, ratings, vote_mask, task, state, classes=torch.tensor([[0, 1, 0]]))
        >>> output.shown_by.tolist()  # the first proposal says what the third does, which has more support
        [[2, 1, 2]]
        >>> _ = torch.nn.init.normal_(cell.trust.weight, std=0.01)  # the state speaks into trust from the first step on
        >>> state = None
        >>> for _ in range(3):
        ...     output, state = cell(embeddings, ratings, vote_mask, task, state)
        >>> output.consensus[0, 1].backward()
        >>> bool(cell.gate.bias.grad != 0)
        True
    """

    def __init__(
        self,
        dim: int,
        agents: int,
        slots: int = 4,
        *,
        vote: Any = None,
        gate: Any = None,
        trust: Any = None,
        calibration: nn.Module | None = None,
        reading: Any = None,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        if min(dim, agents, slots) < 1:
            raise ValueError(f"expected dim, agents and slots of at least 1, got {dim}, {agents} and {slots}")
        if pooling not in POOLINGS:
            raise ValueError(f"expected pooling to be mean, sum or logsumexp, got {pooling!r}")
        self.dim, self.agents, self.slots, self.pooling = dim, agents, slots, pooling
        self.agent_names = None
        self.vote = _part("vote", QuadraticVote() if vote is None else vote)
        self.gate = _part("gate", ForgetGate() if gate is None else gate)
        self.trust = _part("trust", Trust(agents, dim) if trust is None else trust)
        self.calibration, self.reading = calibration, reading
        self.log_beta = nn.Parameter(torch.tensor(0.0))
        self.backing = nn.Parameter(torch.tensor(0.0))  # how far an author's weight counts for its own proposal

    @property
    def beta(self) -> Tensor:
        """Inverse temperature of the consensus."""
        return self.log_beta.exp()

    def like(self, **parts: Any) -> "ConsensusCell":
        """A copy with other parts in place of its own, in its dtype: `cell.like(gate=MyGate())`.

        Args:
            **parts: vote, gate, trust, calibration or reading, as the constructor takes them.

        Raises:
            ValueError: for a part that a cell does not have.
        """
        if unknown := parts.keys() - set(PARTS):
            raise ValueError(f"cell: expected parts out of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
        other = copy.deepcopy(self)
        for name, part in parts.items():
            setattr(other, name, part if part is None else _part(name, part))
        return other.to(self.log_beta)

    def forward(
        self,
        embeddings: Float[Tensor, "batch proposal dim"],
        ratings: Float[Tensor, "batch voter proposal"],
        vote_mask: Bool[Tensor, "batch voter proposal"],
        task: Float[Tensor, "batch dim"],
        state: MemoryState | None = None,
        *,
        voters: Int[Tensor, "batch voter"] | None = None,
        authors: Int[Tensor, "batch proposal"] | None = None,
        classes: Int[Tensor, "batch proposal"] | None = None,
        features: Float[Tensor, "batch proposal feature"] | None = None,
        category: Int[Tensor, "batch"] | None = None,
        proposal_mask: Bool[Tensor, "batch proposal"] | None = None,
        voter_mask: Bool[Tensor, "batch voter"] | None = None,
        winner_alone: bool = False,
    ) -> tuple[ConsensusOutput, MemoryState]:
        """One round: the vote, then the memory. Of proposals that say the same, the one that shows their answer enters.

        Args:
            embeddings: of the proposals; numbers that are not finite count as 0. Floats of any kind are taken in the
                dtype of the cell.
            ratings: in [-1, 1]; anything where masked. One that is not finite counts as masked.
            vote_mask: which ratings count.
            task: embedding of the question; likewise.
            state: the memory so far; empty if None.
            voters: index of each voter in the pool; 0, 1, ... if None.
            authors: index of each proposal's author, for `backing`; nobody if None.
            classes: equal numbers for proposals that say the same, -1 for one that is its own; all are if None.
            features: of the proposals, for `reading`, which needs authors too; NaN or None where not known.
            category: of the task, for `reading`; -1 or None where not known.
            proposal_mask: which proposals are there; all if None. Masking one equals deleting it.
            voter_mask: which voters are there; all if None. Masking one equals deleting it.
            winner_alone: whether the winner alone enters the memory, with retention 1, rather than every answer with
                its consensus.

        Returns:
            What the round decided, and the memory after it.

        Raises:
            ValueError: if shapes, masks, ratings or the state do not fit each other or this cell.
        """
        like = self.log_beta
        embeddings, ratings, task = (x.to(like.dtype) for x in (embeddings, ratings, task))
        inputs = RoundInput(ratings, vote_mask, voters, authors, classes, features, category, proposal_mask, voter_mask)
        check_round(self, embeddings, inputs, task, state)
        if state is None:
            state = MemoryState.empty(ratings.shape[0], self.slots, self.dim, like.dtype, embeddings.device)
        state = state.like(like)
        embeddings, task = finite(embeddings), finite(task)
        if proposal_mask is not None:
            embeddings = torch.where(proposal_mask[:, :, None], embeddings, 0)
        output = self.elect(inputs, task, state.hidden())
        shown = output.answer_mask
        consensus = (output.consensus[:, None, :] @ embeddings)[:, 0]
        # Without classes every proposal that is there shows an answer.
        told = embeddings if classes is None else torch.where(shown[:, :, None], embeddings, 0)
        news = News(told, output.answer_support, output.consensus, shown, consensus, task)
        keep, admit = gated(self.gate, state, news)
        retention, enters = output.consensus, shown
        if winner_alone:
            enters = shown & (torch.arange(shown.shape[1], device=shown.device) == output.winner[:, None])
            retention = enters.to(retention.dtype)
        retention = torch.where(enters, retention * admit, 0)
        state, source = remember(state, keep, embeddings, retention, output.answer_support, enters)
        return output._replace(gate=keep, source=source), state

    def elect(
        self,
        inputs: RoundInput,
        task: Float[Tensor, "batch dim"],
        hidden: Float[Tensor, "batch dim"] | None = None,
        prepared: Prepared | None = None,
    ) -> ConsensusOutput:
        """The vote of one round alone, without touching the memory.

        `hidden` is the state that the round begins with; None before the first, when it is 0. `prepared` comes from
        `prepare`, so that a fit does that once.
        """
        seats = voters, voter_mask, proposal_mask, counted = inputs.seats()
        ballots, said, own = prepared or self._prepared(inputs, seats)
        tau = trusted(self.trust, voters, task, torch.zeros_like(task) if hidden is None else hidden, voter_mask)
        tau = tau + self._nothing(tau)
        if self.reading is not None:
            shift = self.reading.trust_shift(own, torch.where(voter_mask, voters, 0), inputs.category)
            tau = torch.where(voter_mask, tau + shift, 0)
        support = functional.support(ballots, counted, tau)
        if self.reading is not None and said is not None:
            support = support + self.reading.support_shift(said)
        if inputs.authors is not None:
            known = torch.where(voter_mask, voters, -1)
            support = support + self.backing * author_weight(tau, known, inputs.authors)
        support = torch.where(proposal_mask, support, 0)
        decided = functional.consensus(support, proposal_mask, self.beta, inputs.classes, self.pooling)
        return ConsensusOutput(
            ballots=ballots,
            trust=tau,
            support=support,
            shown_by=decided.shown_by,
            answer_support=decided.support,
            consensus=decided.probability,
            winner=decided.winner,
            all_negative=functional.all_negative(decided.support, decided.winner),
            conviction=functional.conviction(decided.support, decided.winner),
            decisiveness=functional.decisiveness(decided.support),
            controversy=functional.controversy(inputs.ratings, counted),
            gate=support.new_zeros(support.shape[0], 0),
            source=voters.new_zeros(support.shape[0], 0),
        )

    def prepare(self, inputs: RoundInput) -> Prepared:
        """What the vote starts from, which depends on no parameter but those of calibration and vote."""
        return self._prepared(inputs, inputs.seats())

    def _prepared(self, inputs: RoundInput, seats: Seats) -> Prepared:
        voters, voter_mask, proposal_mask, counted = seats
        ratings = inputs.ratings if self.calibration is None else self.calibration(inputs.ratings, counted, voters)
        ballots = balloted(self.vote, ratings, counted)
        if self.reading is None or inputs.features is None or inputs.authors is None:
            return Prepared(ballots, None, None)
        known = torch.where(voter_mask, voters, -2)
        return Prepared(ballots, *self.reading.of_features(inputs.features, inputs.authors, known, proposal_mask))

    def unroll(
        self,
        embeddings: Float[Tensor, "batch round proposal dim"],
        ratings: Float[Tensor, "batch round voter proposal"],
        vote_mask: Bool[Tensor, "batch round voter proposal"],
        task: Float[Tensor, "batch dim"],
        state: MemoryState | None = None,
        *,
        category: Int[Tensor, "batch"] | None = None,
        round_mask: Bool[Tensor, "batch round"] | None = None,
        **others: Tensor | None,
    ) -> tuple[ConsensusOutput, MemoryState]:
        """A recorded sequence of rounds, one after the other; gradients reach every earlier round.

        Arguments and errors as of `forward`, with the axis `round` behind `batch` where they belong to a round.
        `round_mask` says which rounds a task held, all if None: masking one equals deleting it; the memory passes
        through untouched, nothing is decided and the winner is -1.
        """
        batch, rounds, _, _ = ratings.shape
        if rounds < 1:
            raise ValueError(f"expected ratings of at least one round, got shape {tuple(ratings.shape)}")
        if state is None:
            state = MemoryState.empty(batch, self.slots, self.dim, self.log_beta.dtype, embeddings.device)
        if round_mask is not None:
            # Nothing is there in a round that was not held.
            voters, proposals = (round_mask[:, :, None].expand(batch, rounds, n) for n in ratings.shape[2:])
            for name, held in (("voter_mask", voters), ("proposal_mask", proposals)):
                others[name] = held if (given := others.get(name)) is None else held & given
        outputs = []
        for r in range(rounds):
            output, after = self(
                embeddings[:, r],
                ratings[:, r],
                vote_mask[:, r],
                task,
                state,
                category=category,
                **{name: value if value is None else value[:, r] for name, value in others.items()},
            )
            if round_mask is not None:
                output, after = _where_held(round_mask[:, r], output, after, state)
            outputs.append(output)
            state = after
        return ConsensusOutput(*(torch.stack(field, 1) for field in zip(*outputs, strict=True))), state

    def _nothing(self, like: Tensor) -> Tensor | float:
        """Zero, with a gradient of zero to every parameter: what a round does not use has one too."""
        learning = [p for p in self.parameters() if p.requires_grad] if torch.is_grad_enabled() else []
        return torch.stack([p.sum().to(like) for p in learning]).sum() * 0 if learning else 0.0

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"dim={self.dim}, agents={self.agents}, slots={self.slots}, pooling={self.pooling!r}"


def _where_held(
    held: Tensor, output: ConsensusOutput, after: MemoryState, before: MemoryState
) -> tuple[ConsensusOutput, MemoryState]:
    """For tasks that did not hold the round: the memory from before it, each slot its own source."""
    state = MemoryState(*(_choose(held, new, old) for new, old in zip(after, before, strict=True)))
    own = torch.where(before.mask, torch.arange(before.mask.shape[1], device=held.device), -1)
    kept = before.mask.to(output.gate.dtype)
    return output._replace(gate=_choose(held, output.gate, kept), source=_choose(held, output.source, own)), state


def _choose(held: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(held.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _part(name: str, part: Any) -> Any:
    """A part by its name, or as it is where it can be called."""
    if name in NAMED and not callable(part):
        return part_named(name, part)
    if not callable(part):
        raise ValueError(f"cell: expected a {name} as a module, got {part!r}: see core.{name}")
    return part
