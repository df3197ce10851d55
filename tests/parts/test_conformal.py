import pytest
import torch
from safetensors.torch import save_file

from nsed_torch.parts.conformal import ConformalSets


def drawn(n, seed=0, answers=3):
    """Consensuses and truths that they tell the chance of; in a fifth of the tasks no answer is right."""
    draw = torch.Generator().manual_seed(seed)
    p = torch.rand(n, answers, generator=draw).double().pow(3)
    p = p / p.sum(1, keepdim=True)
    truth = torch.multinomial(p, 1, generator=draw)[:, 0]
    right = torch.nn.functional.one_hot(truth, answers).bool() & (torch.rand(n, 1, generator=draw) > 0.2)
    return p, torch.ones(n, answers, dtype=torch.bool), right


def covered(sets, data, category=None):
    p, mask, right = data
    found = sets(p, mask, category)
    return torch.where(right.any(1), (right & found.answers).any(1), found.none)


@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_sets_hold_the_truth_as_often_as_promised(coverage):
    sets = ConformalSets(coverage).double().fit(*drawn(2000))
    sets.calibrate(*drawn(2000, seed=1))
    assert covered(sets, drawn(20000, seed=2)).double().mean().item() == pytest.approx(coverage, abs=0.02)


def test_a_category_has_a_threshold_of_its_own():
    p, mask, right = drawn(4000, seed=1)
    category = torch.arange(4000) % 2
    wrong = right.roll(1, 1)
    right = torch.where((category == 1)[:, None], wrong, right)  # where the consensus knows nothing
    one, own = ConformalSets(0.9).double(), ConformalSets(0.9, ["easy", "hard"]).double()
    for sets in (one, own):
        sets.fit(p[:2000], mask[:2000], right[:2000])
        sets.calibrate(p[2000:], mask[2000:], right[2000:], category[2000:])
    p2, mask2, right2 = drawn(4000, seed=2)
    right2 = torch.where((category == 1)[:, None], right2.roll(1, 1), right2)
    easy = covered(one, (p2, mask2, right2), category)[category == 0].double().mean()
    assert easy > 0.93
    for index in (0, 1):
        kept = covered(own, (p2, mask2, right2), category)[category == index].double().mean().item()
        assert kept == pytest.approx(0.9, abs=0.03)


def test_too_few_tasks_promise_by_keeping_everything():
    sets = ConformalSets(0.95).double().calibrate(*drawn(10))
    found = sets(*drawn(5, seed=1)[:2])
    assert found.answers.all()
    assert found.none.all()
    assert not found.decided.any()


def test_the_winner_is_always_in_and_nobody_decides_for_no_answer():
    sets = ConformalSets(0.5).double()
    with torch.no_grad():
        sets.threshold.fill_(0.0)
    mask = torch.tensor([[True, True], [False, False]])
    found = sets(torch.tensor([[0.6, 0.4], [0.0, 0.0]], dtype=torch.float64), mask)
    assert found.answers.tolist() == [[True, False], [False, False]]
    assert found.none.tolist() == [False, True]
    assert found.decided.tolist() == [True, False]


def test_chances_sum_to_one_and_masked_answers_have_none():
    sets = ConformalSets(0.9).double().fit(*drawn(200))
    p, mask, _ = drawn(50)
    mask[:, 2] = False
    answers, none = sets.chances(p, mask)
    assert not answers[:, 2].any()
    torch.testing.assert_close(answers.sum(1) + none, (p[:, :2].sum(1)) * (1 - none) + none)


def test_saved_and_loaded(tmp_path):
    sets = ConformalSets(0.9, ["law"]).double().fit(*drawn(200)).calibrate(*drawn(200, seed=1))
    sets.save_pretrained(tmp_path)
    again = ConformalSets.from_pretrained(tmp_path).double()
    assert (again.coverage, again.categories) == (0.9, ("law",))
    for name, value in sets.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value)


@pytest.mark.parametrize(
    "metadata", [None, {"coverage": "2", "categories": "[]"}, {"coverage": "0.9", "categories": "{"}]
)
def test_what_is_no_set_is_refused_in_one_line(tmp_path, metadata):
    save_file({"weight": torch.zeros(4)}, tmp_path / "conformal.safetensors", metadata=metadata)
    with pytest.raises(ValueError, match=r"conformal\.safetensors: not conformal sets .*: save them again"):
        ConformalSets.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("categories", "threshold"), [('["\\u001b[31m"]', 1.0), ('["law"]', torch.nan), ('["law"]', 1e30)]
)
def test_numbers_and_names_that_are_none_are_refused(tmp_path, categories, threshold):
    tensors = ConformalSets(0.9, ["law"]).state_dict() | {"threshold": torch.tensor(threshold)}
    metadata = {"coverage": "0.9", "categories": categories}
    save_file(tensors, tmp_path / "conformal.safetensors", metadata=metadata)
    with pytest.raises(ValueError, match=r"not conformal sets \(.*expected (numbers in|printable names)"):
        ConformalSets.from_pretrained(tmp_path)


def test_faulty_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"coverage: expected a share in \(0, 1\), got 1.0"):
        ConformalSets(1.0)
    with pytest.raises(ValueError, match="expected conformal sets, got none there"):
        ConformalSets.from_pretrained(tmp_path)
