"""Rules that choose one agent a task, or one after the other till one answers: what single models can reach."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.traces.episodes import Episodes
from nsed_torch.tuning.rules.learned_votes import library
from nsed_torch.tuning.rules.weighted_votes import accuracy

NEIGHBOURS = (10, 30, 100, 300)  # how many training questions the router may look at; inner folds choose


def best_single(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """1 for the answer of the agent most accurate on training tasks, 0 for others; nothing where it is silent."""
    return _of(test, _ranked(accuracy(train))[0].expand(len(test)))


def fallback(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`best_single`, and where it is silent the next best, and so on: what filling gaps is worth without any vote."""
    ranked, answered = _ranked(accuracy(train)), test.by_agent().answered
    return _of(test, _first(answered.double(), ranked))


def best_by_category(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`best_single` within each category, or the best of all; ties go to the agent more accurate on all tasks."""
    if not (train.categories and test.categories):
        raise ValueError("expected categories for the rule best_by_category, got tasks without: leave the rule out")
    right, ranked = train.by_agent().right.double(), _ranked(accuracy(train))
    best = {}
    for category in dict.fromkeys(train.categories):
        rows = [i for i, name in enumerate(train.categories) if name == category]
        best[category] = int(_first(right[rows].sum(0)[None], ranked))
    return _of(test, ranked.new_tensor([best.get(category, int(ranked[0])) for category in test.categories]))


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
    return _of(test, _nearest_best(train.task, right, test.task, (count,))[0])


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
    return _of(test, _first(chance.to(test.task.device), _ranked(accuracy(train))))


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
    ranked = _ranked(right.double().mean(0))
    return [_first(found[:, min(count, most) - 1], ranked) for count in counts]


def _ranked(accuracy: Float[Tensor, "agent"]) -> Int[Tensor, "agent"]:
    return accuracy.argsort(descending=True, stable=True)


def _first(score: Tensor, ranked: Int[Tensor, "agent"]) -> Int[Tensor, "batch"]:
    """The agent of the highest score in each row, the earliest in rank of several."""
    return ranked[score[:, ranked].argmax(1)]


def _of(test: Episodes, chosen: Int[Tensor, "batch"]) -> Float[Tensor, "batch agent"]:
    """1 for answers equal to the chosen agent's, 0 for others; -inf for all where it is silent: no other is asked."""
    classes = test.by_agent().classes
    answer = classes.gather(1, chosen[:, None])
    return (classes == answer).double().masked_fill((classes < 0) | (answer < 0), -torch.inf)
