"""Deliberation on tensors, one round or a recorded sequence: the innermost of the three nested cells."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core import functional
from nsed_torch.core.election import ConsensusOutput, Prepared, RoundInput
from nsed_torch.core.functional.tally import POOLINGS, author_weight
from nsed_torch.core.gate import ForgetGate, NoteGate
from nsed_torch.core.memory import BoundedMemory, MemoryState
from nsed_torch.core.pretrained import Pretrained
from nsed_torch.core.reading import Reading, of_voters
from nsed_torch.core.trust import Trust
from nsed_torch.core.vote import QuadraticVote


class ConsensusCell(Pretrained):
    """Ratings in, consensus and next memory out: `(embeddings, ratings, masks, answers, state) -> (output, state)`.

    A fresh cell reproduces the published protocol: signed quadratic vote, equal voters, winner by summed
    ballots. Classes of equal answers, trust, the softmax over supports, kappa, backing and the memory's recurrence are
    ours; without classes every proposal is its own answer, as published. Gradients
    cross rounds through the hidden state, which speaks into trust and support once those weights leave
    zero. `agent_names`, None until somebody knows them, are saved along.

    Args:
        dim: width of the embeddings.
        agents: size of the pool that voters come from.
        slots: memory slots a task keeps.
        vote: ratings and mask to ballots; signed quadratic if None.
        gate: state, consensus and task embedding to factors on retention; a learned gate if None.
        calibration: ratings, mask and voters to the ratings that are voted on; as given if None.
        reading: what moves trust and support by what proposals say and by the task's category; nothing if None.
        pooling: how proposals that say the same pool their support: mean, sum or logsumexp.

    Raises:
        ValueError: if a size is below 1 or the pooling is unknown.

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
    """

    def __init__(
        self,
        dim: int,
        agents: int,
        slots: int = 4,
        *,
        vote: nn.Module | None = None,
        gate: nn.Module | None = None,
        calibration: nn.Module | None = None,
        reading: Reading | None = None,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        if min(dim, agents, slots) < 1:
            raise ValueError(f"expected dim, agents and slots of at least 1, got {dim}, {agents} and {slots}")
        if pooling not in POOLINGS:
            raise ValueError(f"expected pooling to be mean, sum or logsumexp, got {pooling!r}")
        self.dim, self.agents, self.slots, self.pooling = dim, agents, slots, pooling
        self.agent_names = None
        self.vote = vote if vote is not None else QuadraticVote()
        self.gate = gate if gate is not None else ForgetGate()
        self.trust = Trust(agents, dim)
        self.calibration = calibration
        self.reading = reading
        self.memory = BoundedMemory()
        self.log_beta = nn.Parameter(torch.tensor(0.0))
        self.kappa = nn.Parameter(torch.tensor(0.0))  # pull of the hidden state on support
        self.backing = nn.Parameter(torch.tensor(0.0))  # how far an author's weight counts for its own proposal

    @property
    def beta(self) -> Tensor:
        """Inverse temperature of the consensus."""
        return self.log_beta.exp()

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
            embeddings: of the proposals; numbers that are not finite count as 0.
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
            ValueError: if the widths, the number of voters or the state do not fit this cell.
        """
        self._check(embeddings, ratings, state)
        if state is None:
            state = MemoryState.empty(len(ratings), self.slots, self.dim, embeddings.dtype, embeddings.device)
        inputs = RoundInput(ratings, vote_mask, voters, authors, classes, features, category, proposal_mask, voter_mask)
        _, _, there, _ = inputs.seats()
        embeddings = torch.where(there[:, :, None] & embeddings.isfinite(), embeddings, 0)
        task = torch.where(task.isfinite(), task, 0)
        output = self.elect(inputs, task, state.hidden(), embeddings)
        reads = state, (output.consensus[:, :, None] * embeddings).sum(1), task
        came = (torch.where(output.answer_mask[:, :, None], embeddings, 0),) if isinstance(self.gate, NoteGate) else ()
        gate = self.gate(*reads, *came)
        state, gate = state.faded(gate)
        retention, enters = output.consensus, output.answer_mask
        if winner_alone:
            enters = enters & (torch.arange(enters.shape[1], device=enters.device) == output.winner[:, None])
            retention = enters.to(retention.dtype)
        if isinstance(self.gate, NoteGate):
            read = self.gate.entry_features(embeddings, output.answer_support, task)
            retention = retention * torch.where(enters, self.gate.admits(read), 0)
        state, source = self.memory(state, gate, embeddings, retention, output.answer_support, proposal_mask=enters)
        return output._replace(gate=gate, source=source), state

    def elect(
        self,
        inputs: RoundInput,
        task: Float[Tensor, "batch dim"],
        hidden: Float[Tensor, "batch dim"] | None = None,
        embeddings: Float[Tensor, "batch proposal dim"] | None = None,
        prepared: Prepared | None = None,
    ) -> ConsensusOutput:
        """The vote of one round alone, without touching the memory.

        `hidden` is the state that the round begins with; None before the first, when it is 0. It pulls on the
        embeddings, which are not needed without it. `prepared` comes from `prepare`, so that a fit does that once.
        """
        self._check(task, inputs.ratings)
        ballots, said, own = prepared or self.prepare(inputs)
        voters, voter_mask, proposal_mask, counted = inputs.seats()
        tau = self.trust(voters, task, torch.zeros_like(task) if hidden is None else hidden, voter_mask)
        if self.reading is not None:
            shift = self.reading.trust_shift(own, torch.where(voter_mask, voters, 0), inputs.category)
            tau = torch.where(voter_mask, tau + shift, 0)
        pull = None if embeddings is None else hidden
        support = functional.support(ballots, counted, tau, kappa=self.kappa, embeddings=embeddings, hidden=pull)
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
            gate=support.new_zeros(len(support), 0),
            source=voters.new_zeros(len(support), 0),
        )

    def prepare(self, inputs: RoundInput) -> Prepared:
        """What the vote starts from, which depends on no parameter but those of calibration and vote."""
        voters, voter_mask, proposal_mask, counted = inputs.seats()
        ratings = inputs.ratings if self.calibration is None else self.calibration(inputs.ratings, counted, voters)
        ballots = self.vote(ratings, counted)
        if self.reading is None or inputs.features is None or inputs.authors is None:
            return Prepared(ballots, None, None)
        said = self.reading.against_habits(inputs.features.to(ballots.dtype), inputs.authors)
        own = of_voters(said, torch.where(voter_mask, voters, -2), inputs.authors, proposal_mask)
        return Prepared(ballots, said, own)

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
            state = MemoryState.empty(batch, self.slots, self.dim, embeddings.dtype, embeddings.device)
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

    def _check(self, embeddings: Tensor, ratings: Tensor, state: MemoryState | None = None) -> None:
        if embeddings.shape[-1] != self.dim:
            raise ValueError(
                f"expected embeddings of width {self.dim}, got {embeddings.shape[-1]}: build the cell for it"
            )
        if ratings.shape[1] > self.agents:
            raise ValueError(f"expected at most {self.agents} voters, got {ratings.shape[1]}: raise agents")
        if state is not None and state.mask.shape != (len(ratings), self.slots):
            expected, got = (len(ratings), self.slots), tuple(state.mask.shape)
            raise ValueError(f"expected a state of (batch, slots) = {expected}, got {got}: start from state=None")

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
