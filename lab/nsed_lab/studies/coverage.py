"""`python -m nsed_lab.studies.coverage [draws=1000]`: how often intervals of shares over questions hold the truth.

Questions have chances of their own (beta), of answers to one question each is a draw by that chance. A line a cell.
"""

import itertools
import sys

import numpy as np

from nsed_torch.evaluation.statistics import clustered_share

SIZES = ((20, 8), (40, 4), (50, 5), (100, 8), (30, 20))
MEANS = (0.02, 0.05, 0.1, 0.3, 0.5, 0.9, 0.97)
ALIKE = (0.5, 2, 10)
"""The sum of the beta's parameters: the smaller, the more alike are answers to one question."""


def main(draws: int = 1000) -> None:
    """Print every cell, then the least and the greatest share of intervals that hold the truth."""
    rng, found = np.random.default_rng(0), []
    for (questions, each), mean, alike in itertools.product(SIZES, MEANS, ALIKE):
        held, asked, total = 0, range(questions), np.full(questions, float(each))
        for _ in range(draws):
            right = rng.binomial(each, rng.beta(mean * alike, (1 - mean) * alike, questions))
            value = clustered_share(asked, right, total)
            held += value.low <= mean <= value.high
        found.append(held / draws)
        sys.stdout.write(f"{questions} questions of {each}, mean {mean}, alike {alike}: {found[-1]:.3f}\n")
    sys.stdout.write(f"{len(found)} cells: from {min(found):.3f} to {max(found):.3f}\n")


if __name__ == "__main__":
    main(**{key: int(value) for key, value in (word.split("=") for word in sys.argv[1:])})
