"""Rules that scikit-learn fits to graded votes: one weight per agent, and trees on what is known of an answer."""

import importlib
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_lab.rules.weighted_votes import agreement
from nsed_torch.records.extras import missing
from nsed_torch.traces.episodes import Episodes
from nsed_torch.tuning.rules import accuracy, plurality

_MOST_CATEGORIES = 250  # what a histogram of 255 bins has room for


def library(module: str, package: str, rule: str) -> Any:
    """A module of the extra `recorded`, imported when a rule is first used."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(missing(package, f"the rule {rule}", "recorded")) from error


def logistic_vote(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """A vote with weights of a logistic regression: a right answer against each wrong one of its task.

    `P(a beats b) = sigmoid(w . (votes for a - votes for b))` without intercept, over all pairs of a right and a wrong
    answer to one training task, each both ways round. Scikit-learn has no listwise logit; where tasks have two answers
    this is one. Plurality where no task has both a right and a wrong answer.
    """
    linear = library("sklearn.linear_model", "scikit-learn", "logistic_vote")
    table = _answers(train)
    right, wrong = table.right, table.there & ~table.right
    task, one, other = (right[:, :, None] & wrong[:, None, :]).nonzero(as_tuple=True)
    if not len(task):
        return plurality(train, test)
    difference = table.votes[task, one].double() - table.votes[task, other].double()
    model = linear.LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8, max_iter=1000)
    model.fit(torch.cat([difference, -difference]).numpy(), (torch.arange(2 * len(task)) < len(task)).numpy())
    ballots = _answers(test)
    return _spread(ballots.votes.double() @ torch.tensor(model.coef_[0]), ballots, test)


def mutual_information(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`logistic_vote` of half the pool, chosen greedily by what its votes tell of the truth (after arXiv 2602.08003).

    One agent after the other joins that raises most `I(Y; X_S)`, Y whether an answer is right, X_S who of the chosen
    gave it, from the counts of training answers. Published: the greedy choice by information that data show, under a
    budget, for statements that are true or false. Ours: an answer as such a statement, half the pool, how they vote.
    """
    agents, chosen = len(train.agents), list[int]()
    while len(chosen) < (agents + 1) // 2:
        chosen.append(most_telling(train, chosen, [agent for agent in range(agents) if agent not in chosen]))
    gone = [name for agent, name in enumerate(train.agents) if agent not in chosen]
    scores, classes = logistic_vote(train.without(gone), test.without(gone)), test.by_agent().classes
    same = (classes[:, :, None] == classes[:, None, :]) & (classes >= 0)[:, :, None]
    return scores[:, None, :].masked_fill(~same, -torch.inf).amax(2)


def most_telling(train: Episodes, chosen: list[int], rest: list[int]) -> int:
    """Which of the rest raises most what the votes of the chosen tell of the truth."""
    table = _answers(train)
    votes, right = table.votes[table.there].long(), table.right[table.there].long()
    pattern = votes[:, chosen].unique(dim=0, return_inverse=True)[1] if chosen else torch.zeros_like(right)
    return max(rest, key=lambda agent: _information(2 * pattern + votes[:, agent], right))


def boosted_votes(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """Probability by gradient boosted trees that an answer is right, from votes alone (after arXiv 2601.07245).

    A row is one answer of a task; the task's answer is its most probable row. Features: who voted for it, who for
    another and who for none; its votes, their share, rank and lead; how many votes and answers the task has; mean and
    highest training accuracy of its voters; how often they agree otherwise; its label and category where known. Ours:
    the features in detail; 200 trees of 8 leaves at rate 0.05, for which folds within 6,400 recorded questions spoke;
    no early stopping, which would divide the rows of a task. Plurality where training answers are all right or wrong.
    """
    return _boosted(train, test)


def boosted_reading(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`boosted_votes` that read what `parts.reading` does: the mean features of an answer's proposals, where known."""
    return _boosted(train, test, reads=True)


def _boosted(train: Episodes, test: Episodes, *, reads: bool = False) -> Float[Tensor, "batch agent"]:
    ensemble = library("sklearn.ensemble", "scikit-learn", "boosted_votes")
    fit, table = _answers(train), _answers(test)
    categories = sorted(set(train.categories)) if test.categories else []
    rows = _features(train, train, fit, categories, reads=reads)
    known = ~rows.isnan().all(0)
    # The last two columns are the label and the category.
    which = (torch.arange(rows.shape[1]) >= rows.shape[1] - 2)[known]
    target = fit.right[fit.there]
    if target.all() or not target.any():
        return plurality(train, test)
    model = ensemble.HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=200,
        max_leaf_nodes=8,
        categorical_features=which.numpy(),
        early_stopping=False,
        random_state=0,
    )
    model.fit(rows[:, known].numpy(), target.numpy())
    scores = torch.full(table.there.shape, -torch.inf, dtype=torch.float64)
    if table.there.any():
        asked = _features(train, test, table, categories, reads=reads)[:, known]
        scores[table.there] = torch.tensor(model.predict_proba(asked.numpy())[:, 1])
    return _spread(scores, table, test)


def _information(pattern: Int[Tensor, "answer"], right: Int[Tensor, "answer"]) -> float:
    """Mutual information of two columns, by the shares in which their values meet."""
    joint = torch.zeros(int(pattern.max()) + 1, 2, dtype=torch.float64)
    joint.index_put_((pattern, right), torch.ones(1, dtype=torch.float64), accumulate=True)
    share = joint / joint.sum()
    return float(torch.special.xlogy(share, share / (share.sum(1, keepdim=True) * share.sum(0)).clamp(1e-30)).sum())


class _Answers(NamedTuple):
    """The different answers of each task, each in the column of its first agent."""

    votes: Bool[Tensor, "batch answer agent"]  # who gave it
    there: Bool[Tensor, "batch answer"]  # which columns are answers
    right: Bool[Tensor, "batch answer"]
    labels: Int[Tensor, "batch answer"]  # shared by tasks, -1 for none


def _answers(episodes: Episodes) -> _Answers:
    right, answered, classes, labels = (value.cpu() for value in episodes.by_agent())
    same = (classes[:, :, None] == classes[:, None, :]) & answered[:, :, None]
    there = answered & (same.int().argmax(2) == torch.arange(classes.shape[1]))
    votes = same & there[:, :, None]
    return _Answers(votes, there, (votes & right[:, None]).any(2), labels)


def _spread(scores: Float[Tensor, "batch answer"], table: _Answers, test: Episodes) -> Float[Tensor, "batch agent"]:
    """Scores of answers to the agents that gave them."""
    column = table.votes.int().argmax(1)
    return scores.gather(1, column).masked_fill(~table.votes.any(1), -torch.inf).to(test.task.device)


def _features(
    train: Episodes, episodes: Episodes, table: _Answers, categories: list[str], *, reads: bool = False
) -> Float[Tensor, "answer feature"]:
    """One row per answer, NaN for what is not known; its label and its task's category come last."""
    votes = table.votes.double()
    skill = accuracy(train).cpu()
    size = votes.sum(2)
    given = size.sum(1, keepdim=True)
    larger = (size[:, None, :] > size[:, :, None]).sum(2)
    rival = (size[:, None, :] - torch.eye(size.shape[1]) * size.shape[1] * 2).amax(2).clamp(min=0)
    voters = size.clamp(min=1)
    rate, known = agreement(train)
    agree = torch.where(known, rate, 0).cpu()
    pairs = (size * (size - 1)).clamp(min=1)
    who = votes.masked_fill(~table.votes.any(1)[:, None, :], torch.nan)
    numbers = torch.stack(
        [
            size,
            size / given.clamp(min=1),
            larger.double(),
            size - rival,
            given.expand_as(size),
            table.there.sum(1, keepdim=True).expand_as(size).double(),
            (votes @ skill) / voters,
            (votes * skill).amax(2),
            torch.where(size > 1, ((votes @ agree) * votes).sum(2) / pairs, torch.nan),
        ],
        dim=2,
    )
    place = {name: i for i, name in enumerate(categories[:_MOST_CATEGORIES])}
    kind = torch.tensor([float(place.get(name, torch.nan)) for name in episodes.categories or [""] * len(episodes)])
    label = torch.where((table.labels >= 0) & (table.labels < _MOST_CATEGORIES), table.labels.double(), torch.nan)
    groups = torch.stack([label, kind.double()[:, None].expand_as(size)], dim=2)
    parts = [who, numbers, groups]
    if reads and episodes.features is not None:
        read = episodes.of_agents(episodes.features, torch.nan).double().cpu()
        said = torch.where(table.votes[..., None], read[:, None], torch.nan)
        parts.insert(0, said.nanmean(2))
    return torch.cat(parts, dim=2)[table.there]
