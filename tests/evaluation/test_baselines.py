"""What a consensus has to beat, against counts by hand."""

from nsed_torch.evaluation.baselines import best_single, oracle, plurality_correct


def test_baselines(guesses):
    train, test = guesses(40), guesses(30, seed=3)
    right, answered, classes, _ = test.by_agent()
    assert answered.all()
    assert classes.equal(test.classes[:, -1])
    assert oracle(test).equal(right.any(1))
    score, name = best_single(train, test)
    assert name == "cat"
    assert score.equal(right[:, 2])
    # Three of four say no, unless nobody misleads them: then all four differ or "no" has two.
    counts = [[row.count(c) for c in row] for row in test.classes[:, 0].tolist()]
    first = [row.index(max(row)) for row in counts]
    assert plurality_correct(test).tolist() == [right[i, j].item() for i, j in enumerate(first)]
