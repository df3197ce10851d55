"""Deliberation on tensors, one round or a recorded sequence: the innermost of the three nested cells."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch import functional
from nsed_torch.nn.gate import ForgetGate
from nsed_torch.nn.memory import BoundedMemory, MemoryState
from nsed_torch.nn.pretrained import Pretrained
from nsed_torch.nn.reliability import Reliability
from nsed_torch.nn.vote import QuadraticVote


class ConsensusOutput(NamedTuple):
    """What one round decided; from `ConsensusCell.unroll`, every field has the axis `round` after `batch`.

    Args:
        ballots: the votes; 0 where masked.
        reliability: weight of each voter; 0 where masked.
        support: net support; 0 where masked.
        consensus: probability of each proposal; 0 where masked.
        winner: index of the winning proposal, -1 where none counts.
        all_negative: whether even the winner has negative support.
        conviction: the winner's share of all absolute support, in [-1, 1].
        decisiveness: sum of absolute supports.
        controversy: variance of each proposal's counted ratings.
        gate: factor on the incoming slots; 0 for an empty one.
        source: for each slot of the new state its index among old slots followed by proposals, -1 if empty.
        hidden: the hidden state after the update.
    """

    ballots: Float[Tensor, "batch voter proposal"]
    reliability: Float[Tensor, "batch voter"]
    support: Float[Tensor, "batch proposal"]
    consensus: Float[Tensor, "batch proposal"]
    winner: Int[Tensor, "batch"]
    all_negative: Bool[Tensor, "batch"]
    conviction: Float[Tensor, "batch"]
    decisiveness: Float[Tensor, "batch"]
    controversy: Float[Tensor, "batch proposal"]
    gate: Float[Tensor, "batch slot"]
    source: Int[Tensor, "batch slot"]
    hidden: Float[Tensor, "batch dim"]


class ConsensusCell(Pretrained):
    """Ratings in, consensus and next memory out: `(embeddings, ratings, masks, state) -> (output, state)`.

    A fresh cell reproduces the published protocol: signed quadratic vote, equal voters, winner by summed
    ballots. Reliability, the softmax over supports, kappa, backing and the memory's recurrence are ours. Gradients
    cross rounds through the hidden state, which speaks into reliability and support once those weights leave
    zero. `save_pretrained` and `from_pretrained` are in `nn.pretrained`; `agent_names`, None until somebody knows
    them, travel along.

    Args:
        dim: width of the embeddings.
        agents: size of the pool that voters come from.
        slots: memory slots a task keeps.
        vote: ratings and mask to ballots; signed quadratic if None.
        gate: state, consensus and task embedding to factors on retention; a learned gate if None.
        reliability: voters, task, hidden state and mask to weights; one weight vector an agent if None.
        calibration: ratings, mask and voters to the ratings that are voted on; as given if None.
        beta: inverse temperature of the consensus at the start, above 0; trained as its logarithm.
        kappa: pull of the hidden state on support at the start.
        backing: how far an author's weight as a voter counts for its own proposal at the start.

    Raises:
        ValueError: if a size is below 1 or beta is not above 0.
    """

    def __init__(
        self,
        dim: int,
        agents: int,
        slots: int = 4,
        *,
        vote: nn.Module | None = None,
        gate: nn.Module | None = None,
        reliability: nn.Module | None = None,
        calibration: nn.Module | None = None,
        beta: float = 1.0,
        kappa: float = 0.0,
        backing: float = 0.0,
    ) -> None:
        super().__init__()
        if min(dim, agents, slots) < 1:
            raise ValueError(f"expected dim, agents and slots of at least 1, got {dim}, {agents} and {slots}")
        if not 0 < beta < math.inf:
            raise ValueError(f"expected a finite beta above 0, got {beta}")
        self.dim, self.agents, self.slots = dim, agents, slots
        self.agent_names = None
        self.vote = vote if vote is not None else QuadraticVote()
        self.gate = gate if gate is not None else ForgetGate()
        self.reliability = reliability if reliability is not None else Reliability(agents, dim)
        self.calibration = calibration
        self.memory = BoundedMemory()
        self.log_beta = nn.Parameter(torch.tensor(math.log(beta)))
        self.kappa = nn.Parameter(torch.tensor(float(kappa)))
        self.backing = nn.Parameter(torch.tensor(float(backing)))

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
        proposal_mask: Bool[Tensor, "batch proposal"] | None = None,
        voter_mask: Bool[Tensor, "batch voter"] | None = None,
    ) -> tuple[ConsensusOutput, MemoryState]:
        """One round.

        Args:
            embeddings: of the proposals.
            ratings: in [-1, 1]; anything, also NaN, where masked.
            vote_mask: which ratings count.
            task: embedding of the question.
            state: the memory so far; empty if None.
            voters: index of each voter in the pool; 0, 1, ... if None.
            authors: index of each proposal's author, for `backing`; nobody if None.
            proposal_mask: which proposals are there; all if None. Masking one equals deleting it.
            voter_mask: which voters are there; all if None. Masking one equals deleting it.

        Returns:
            What the round decided, and the memory after it.

        Raises:
            ValueError: if the widths, the number of voters or the state do not fit this cell.
        """
        self._check(embeddings, ratings, state)
        device = embeddings.device
        batch, n_voters, n_proposals = ratings.shape
        if state is None:
            state = MemoryState.empty(batch, self.slots, self.dim, embeddings.dtype, device)
        if voters is None:
            voters = torch.arange(n_voters, device=device).expand(batch, -1)
        if proposal_mask is None:
            proposal_mask = torch.ones(batch, n_proposals, dtype=torch.bool, device=device)
        if voter_mask is None:
            voter_mask = torch.ones(batch, n_voters, dtype=torch.bool, device=device)
        embeddings = torch.where(proposal_mask[:, :, None], embeddings, 0)
        mask = vote_mask & proposal_mask[:, None, :] & voter_mask[:, :, None]

        hidden = state.hidden()
        ballots = self.vote(ratings if self.calibration is None else self.calibration(ratings, mask, voters), mask)
        tau = self.reliability(voters, task, hidden, voter_mask)
        support = functional.support(ballots, mask, tau, kappa=self.kappa, embeddings=embeddings, hidden=hidden)
        if authors is not None:
            known = torch.where(voter_mask, voters, -1)
            support = support + self.backing * functional.author_weight(tau, known, authors)
        support = torch.where(proposal_mask, support, 0)
        consensus, winner = functional.consensus(support, proposal_mask, self.beta)

        gate = self.gate(state, (consensus[:, :, None] * embeddings).sum(1), task)
        state, gate = state.faded(gate)
        state, source = self.memory(state, gate, embeddings, consensus, support, proposal_mask=proposal_mask)
        output = ConsensusOutput(
            ballots=ballots,
            reliability=tau,
            support=support,
            consensus=consensus,
            winner=winner,
            all_negative=functional.all_negative(support, winner),
            conviction=functional.conviction(support, winner),
            decisiveness=functional.decisiveness(support),
            controversy=functional.controversy(ratings, mask),
            gate=gate,
            source=source,
            hidden=state.hidden(),
        )
        return output, state

    def unroll(
        self,
        embeddings: Float[Tensor, "batch round proposal dim"],
        ratings: Float[Tensor, "batch round voter proposal"],
        vote_mask: Bool[Tensor, "batch round voter proposal"],
        task: Float[Tensor, "batch dim"],
        state: MemoryState | None = None,
        *,
        voters: Int[Tensor, "batch round voter"] | None = None,
        authors: Int[Tensor, "batch round proposal"] | None = None,
        proposal_mask: Bool[Tensor, "batch round proposal"] | None = None,
        voter_mask: Bool[Tensor, "batch round voter"] | None = None,
        round_mask: Bool[Tensor, "batch round"] | None = None,
    ) -> tuple[ConsensusOutput, MemoryState]:
        """A recorded sequence of rounds, one after the other; gradients reach every earlier round.

        Args:
            embeddings: as in `forward`, like all others, for every round.
            ratings: in [-1, 1].
            vote_mask: which ratings count.
            task: embedding of the question.
            state: the memory before the first round; empty if None.
            voters: index of each voter in the pool; 0, 1, ... if None.
            authors: index of each proposal's author; nobody if None.
            proposal_mask: which proposals are there; all if None.
            voter_mask: which voters are there; all if None.
            round_mask: which rounds a task held; all if None. Masking one equals deleting it: the memory passes
                through untouched, nothing is decided and the winner is -1.

        Returns:
            What every round decided, and the memory after the last.

        Raises:
            ValueError: if there is no round, and as `forward`.
        """
        batch, rounds, n_voters, n_proposals = ratings.shape
        if rounds < 1:
            raise ValueError(f"expected ratings of at least one round, got shape {tuple(ratings.shape)}")
        device = ratings.device
        if state is None:
            state = MemoryState.empty(batch, self.slots, self.dim, embeddings.dtype, device)
        if proposal_mask is None:
            proposal_mask = torch.ones(batch, rounds, n_proposals, dtype=torch.bool, device=device)
        if voter_mask is None:
            voter_mask = torch.ones(batch, rounds, n_voters, dtype=torch.bool, device=device)
        if round_mask is not None:
            proposal_mask, voter_mask = (m & round_mask[:, :, None] for m in (proposal_mask, voter_mask))
        outputs = []
        for r in range(rounds):
            output, after = self(
                embeddings[:, r],
                ratings[:, r],
                vote_mask[:, r],
                task,
                state,
                voters=None if voters is None else voters[:, r],
                authors=None if authors is None else authors[:, r],
                proposal_mask=proposal_mask[:, r],
                voter_mask=voter_mask[:, r],
            )
            if round_mask is not None:
                output, after = _where_held(round_mask[:, r], output, after, state)
            outputs.append(output)
            state = after
        return ConsensusOutput(*(torch.stack(field, 1) for field in zip(*outputs, strict=True))), state

    def _check(self, embeddings: Tensor, ratings: Tensor, state: MemoryState | None) -> None:
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
        return f"dim={self.dim}, agents={self.agents}, slots={self.slots}"


def _where_held(
    held: Tensor, output: ConsensusOutput, after: MemoryState, before: MemoryState
) -> tuple[ConsensusOutput, MemoryState]:
    """For tasks that did not hold the round: the memory from before it, each slot its own source."""
    state = MemoryState(*(_choose(held, new, old) for new, old in zip(after, before, strict=True)))
    own = torch.where(before.mask, torch.arange(before.mask.shape[1], device=held.device), -1)
    kept = before.mask.to(output.gate.dtype)
    output = output._replace(
        gate=_choose(held, output.gate, kept),
        source=_choose(held, output.source, own),
        hidden=_choose(held, output.hidden, before.hidden()),
    )
    return output, state


def _choose(held: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(held.reshape(-1, *[1] * (new.ndim - 1)), new, old)
