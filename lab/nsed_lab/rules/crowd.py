"""Rules of crowd-sourcing, by crowd-kit: agents are workers, whose skill their agreement with each other tells."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_lab.rules.learned_votes import library
from nsed_torch.questions.graders import numbered
from nsed_torch.traces.episodes import Episodes


@dataclass(frozen=True)
class Crowd:
    """A model of workers and tasks, fitted to the answers of training and test tasks together.

    Scores are its probabilities of labels. Labels are those that tasks share; where a task has none, its classes of
    equal answers get labels at random, with a fixed seed, so that no label means anything. A model that takes true
    labels gets those of training tasks that somebody answered right; the others use no grades.
    """

    method: str  # class of `crowdkit.aggregation`, which names the publication
    options: dict[str, Any] = field(default_factory=dict)  # of its constructor
    graded: bool = False  # whether `fit` takes true labels
    # Whether it is a majority vote weighted by skills; their `predict` needs an older scikit-learn.
    skills: bool = False

    def __call__(self, train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
        """Probability of every agent's answer."""
        aggregation = library("crowdkit.aggregation", "crowd-kit", self.method)
        pandas = library("pandas", "pandas", self.method)
        labels = _labels(train, test)
        task, worker = (labels >= 0).nonzero(as_tuple=True)
        if not (task >= len(train)).any():
            return torch.full((len(test), labels.shape[1]), -torch.inf, dtype=torch.float64)
        votes = pandas.DataFrame({"task": task, "worker": worker, "label": labels[task, worker]})
        known = {}
        if self.graded:
            right, where = train.by_agent().right.cpu().max(1)
            gold = labels[: len(train)].gather(1, where[:, None])[:, 0]
            known["true_labels"] = pandas.Series(gold[right].numpy(), index=right.nonzero()[:, 0].numpy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = getattr(aggregation, self.method)(**self.options)
            if self.skills:
                frame = aggregation.MajorityVote().fit_predict_proba(votes, skills=model.fit(votes).skills_)
            else:
                frame = model.fit_predict_proba(votes, **known)
        frame = frame.reindex(index=range(len(train), len(labels)), columns=range(int(labels.max()) + 1))
        table = torch.tensor(frame.fillna(0.0).to_numpy(dtype="float64"))
        mine = labels[len(train) :]
        return table.gather(1, mine.clamp(min=0)).masked_fill(mine < 0, -torch.inf).to(test.task.device)


def _labels(train: Episodes, test: Episodes) -> Int[Tensor, "task agent"]:
    """Labels of the answers to training tasks, then test tasks; -1 where there is none. One column per agent."""
    both = [part.by_agent() for part in (train, test)]
    if all((part.labels >= 0).eq(part.answered).all() for part in both):
        return torch.cat([part.labels for part in both]).cpu()
    classes = torch.cat([part.classes for part in both]).cpu()
    most = int(classes.max()) + 1 if classes.numel() else 0
    rows = [numbered([number if number >= 0 else None for number in row]) for row in classes.tolist()]
    named = torch.tensor(rows, dtype=torch.long).reshape(classes.shape)
    random = torch.rand(len(named), max(most, 1), generator=torch.Generator().manual_seed(0)).argsort(1)
    return torch.where(named >= 0, random.gather(1, named.clamp(min=0)), -1)
