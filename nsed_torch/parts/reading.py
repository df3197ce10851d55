"""What proposals say, in numbers: it moves trust in their authors and the support of their answers."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core.encoder import Encoder
from nsed_torch.parts.features import groups_of, proposal_features


class Reading(nn.Module):
    """Reads features f of proposals and the task's category: nothing at the start, linear once it has learned. Ours.

    With z the features against their author's habit, `z = clamp((f - mean_i) / deviation_i, -3, 3)`, trust in voter i
    moves by `(v + v_i) . z_i + c_i[category]`, z_i of what the voter itself proposed, and the support of proposal j by
    `u . z_j`. The common v is learned from all voters, so that v_i need only hold what is peculiar to one: with many
    voters and a pull towards zero that is worth more than v_i alone. A feature that is NaN is not known and moves
    nothing.

    Args:
        agents: size of the pool.
        features: their names, as `parts.features` gives them out.
        categories: names of the categories of tasks that trust may depend on.

    Raises:
        ValueError: if there is nothing to read, or a name comes twice.

    Examples:
        >>> import torch
        >>> reading = Reading(3, ["length"], ["law", "physics"])
        >>> _ = reading.learn_habits(torch.tensor([[[1.0], [2.0], [3.0]], [[3.0], [2.0], [5.0]]]))
        >>> with torch.no_grad():
        ...     reading.trust[:, 0] = -0.5  # what is longer than its author's habit is trusted less
        >>> z = reading.against_habits(torch.tensor([[[3.0], [2.0], [4.0]]]), torch.tensor([[0, 1, 2]]))
        >>> [round(x, 3) for x in reading.trust_shift(z, torch.tensor([[0, 1, 2]]))[0].tolist()]
        [-0.5, 0.0, 0.0]
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, agents: int, features: Sequence[str], categories: Sequence[str] = ()) -> None:
        super().__init__()
        self.features, self.categories = tuple(features), tuple(categories)
        names = [*self.features, *self.categories]
        if not names or len(set(self.features)) < len(self.features) or len(set(self.categories)) < len(categories):
            raise ValueError(f"reading: expected different names of features or categories, got {names}")
        count = len(self.features)
        self.register_buffer("mean", torch.zeros(agents, count))
        self.register_buffer("deviation", torch.ones(agents, count))
        self.common = nn.Parameter(torch.zeros(count))
        self.trust = nn.Parameter(torch.zeros(agents, count))
        self.score = nn.Parameter(torch.zeros(count))
        self.category = nn.Parameter(torch.zeros(agents, len(self.categories)))

    @torch.no_grad()
    def learn_habits(self, features: Float[Tensor, "batch agent feature"]) -> "Reading":
        """Take mean and deviation of every agent's features from what it proposed, NaN where it proposed nothing.

        A feature that varies by less than 1e-3 of what it varies by over all agents tells nothing, and its deviation
        is that of all.
        """
        known = features.isfinite()
        count = known.sum(0).clamp(min=1)
        values = torch.where(known, features, 0)
        self.mean.copy_(values.sum(0) / count)
        spread = torch.where(known, features - self.mean, 0).square().sum(0) / count
        whole = (spread * known.sum(0)).sum(0) / known.sum((0, 1)).clamp(min=1)
        floor = torch.where(whole > 0, whole, 1)
        self.deviation.copy_(torch.where(spread > 1e-6 * floor, spread, floor).sqrt())
        return self

    def against_habits(
        self, features: Float[Tensor, "batch proposal feature"], authors: Int[Tensor, "batch proposal"]
    ) -> Float[Tensor, "batch proposal feature"]:
        """Features in deviations from their author's habit, at most 3; 0 where not known, or nobody wrote."""
        index = authors.clamp(min=0)
        z = ((features - self.mean[index]) / self.deviation[index]).clamp(-3, 3)
        return torch.where(features.isfinite() & (authors >= 0)[..., None], z, 0)

    def trust_shift(
        self,
        own: Float[Tensor, "batch voter feature"] | None,
        voters: Int[Tensor, "batch voter"],
        category: Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch voter"]:
        """What is added to the trust in each voter, given by its index in the pool.

        `own` is its own proposal against its habits, 0 without one, None where nobody looked; the task's category is an
        index into `categories`, -1 for any other.
        """
        weight = self.common + self.trust[voters]
        shift = self.trust.new_zeros(voters.shape) if own is None else (weight * own).sum(-1)
        if category is None or not self.categories:
            return shift
        of_category = self.category[voters].gather(2, category.clamp(min=0)[:, None, None].expand(*voters.shape, 1))
        return shift + torch.where((category >= 0)[:, None], of_category[..., 0], 0)

    def of_features(
        self,
        features: Float[Tensor, "batch proposal feature"],
        authors: Int[Tensor, "batch proposal"],
        voters: Int[Tensor, "batch voter"],
        proposal_mask: Bool[Tensor, "batch proposal"],
    ) -> tuple[Float[Tensor, "batch proposal feature"], Float[Tensor, "batch voter feature"]]:
        """Features of the proposals against their authors' habits, and of each voter's own proposal."""
        z = self.against_habits(features.to(self.mean), authors)
        return z, of_voters(z, voters, authors, proposal_mask)

    def of_texts(
        self,
        questions: Sequence[str],
        texts: Sequence[Sequence[str]],
        finals: Sequence[Sequence[str | None]],
        width: int,
        encoder: Encoder,
    ) -> Float[Tensor, "batch proposal feature"]:
        """Features of each task's proposals, `width` of them; NaN where there is none. `finals` are their answers."""
        features, groups = (
            self.mean.new_full((len(texts), width, len(self.features)), math.nan),
            groups_of(self.features),
        )
        for i, (question, said, answers) in enumerate(zip(questions, texts, finals, strict=True)):
            rows = proposal_features(question, said, answers, groups, encoder.embed)
            features[i, : len(rows)] = self.mean.new_tensor(rows).reshape(len(rows), -1)
        return features

    def support_shift(self, z: Float[Tensor, "batch proposal feature"]) -> Float[Tensor, "batch proposal"]:
        """What is added to the support of each proposal, from its features against its author's habits."""
        return z @ self.score

    def categorized(self, names: Sequence[str]) -> Int[Tensor, "batch"]:
        """Index of each task's category; -1 for one that is not known."""
        index = {name: i for i, name in enumerate(self.categories)}
        return torch.tensor([index.get(name, -1) for name in names], dtype=torch.long)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"features={list(self.features)}, categories={list(self.categories)}"


def of_voters(
    z: Float[Tensor, "batch proposal feature"],
    voters: Int[Tensor, "batch voter"],
    authors: Int[Tensor, "batch proposal"],
    proposal_mask: Bool[Tensor, "batch proposal"],
) -> Float[Tensor, "batch voter feature"]:
    """What each voter itself proposed: its proposal's features, the mean of several, 0 without any."""
    own = (voters[:, :, None] == authors[:, None, :]) & proposal_mask[:, None, :]
    weight = own.to(z.dtype) / own.sum(-1, keepdim=True).clamp(min=1)
    return weight @ z
