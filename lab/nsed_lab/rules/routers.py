"""Rules that choose one agent a task: what single models can reach."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_lab.rules.learned_votes import library
from nsed_torch.traces.episodes import Episodes
from nsed_torch.tuning.rules import accuracy, answer_of, first_best, in_rank

NEIGHBOURS = (10, 30, 100, 300)  # how many training questions the router may look at; inner folds choose


def best_by_category(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`best_single` within each category, or the best of all; ties go to the agent more accurate on all tasks."""
    if not (train.categories and test.categories):
        raise ValueError("expected categories for the rule best_by_category, got tasks without: leave the rule out")
    right, ranked = train.by_agent().right.double(), in_rank(accuracy(train))
    best = {}
    for category in dict.fromkeys(train.categories):
        rows = [i for i, name in enumerate(train.categories) if name == category]
        best[category] = int(first_best(right[rows].sum(0)[None], ranked))
    return answer_of(test, ranked.new_tensor([best.get(category, int(ranked[0])) for category in test.categories]))


def knn_router(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`best_single` on the k training questions nearest by cosine; five inner folds of train choose k.

    A usual router of the literature. Its k is the first of `NEIGHBOURS` that chooses the most right agents.
    """
    right = train.by_agent().right
    shuffled = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    folds = torch.arange(len(train)) % 5
    hits = torch.zeros(len(NEIGHBOURS))
    for fold in folds.unique() if len(train) > 1 else ():
        fit, held = shuffled[folds != fold], shuffled[folds == fold]
        for n, chosen in enumerate(_nearest_best(train.task[fit], right[fit], train.task[held], NEIGHBOURS)):
            hits[n] += right[held].gather(1, chosen[:, None]).sum().cpu()
    count = NEIGHBOURS[int(hits.argmax())]
    return answer_of(test, _nearest_best(train.task, right, test.task, (count,))[0])


def logistic_router(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """The agent most probably right by a logistic regression of its own on the question's embedding, C of 1.

    A usual router of the literature. Of an agent that was right always or never, its share of right answers decides.
    """
    linear = library("sklearn.linear_model", "scikit-learn", "logistic_router")
    right, share = train.by_agent().right.cpu(), accuracy(train).cpu()
    chance = share.expand(len(test), -1).clone()
    known, asked = (part.task.double().cpu().numpy() for part in (train, test))
    for agent in ((share > 0) & (share < 1)).nonzero()[:, 0].tolist():
        model = linear.LogisticRegression(max_iter=1000).fit(known, right[:, agent].numpy())
        chance[:, agent] = torch.as_tensor(model.predict_proba(asked)[:, 1])
    return answer_of(test, first_best(chance.to(test.task.device), in_rank(accuracy(train))))


def _nearest_best(
    known: Float[Tensor, "train dim"],
    right: Bool[Tensor, "train agent"],
    asked: Float[Tensor, "batch dim"],
    counts: tuple[int, ...],
) -> list[Int[Tensor, "batch"]]:
    """The agents most often right on each count of neighbours, of all that are known where there are fewer."""
    neighbours = library("sklearn.neighbors", "scikit-learn", "knn_router")
    most = min(max(counts), len(known))
    search = neighbours.NearestNeighbors(n_neighbors=most, metric="cosine", algorithm="brute")
    search.fit(known.double().cpu().numpy())
    near = torch.as_tensor(search.kneighbors(asked.double().cpu().numpy(), return_distance=False))
    found = right[near.to(right.device)].cumsum(1)
    ranked = in_rank(right.double().mean(0))
    return [first_best(found[:, min(count, most) - 1], ranked) for count in counts]
