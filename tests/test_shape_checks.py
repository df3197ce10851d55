"""The type checks of tests refuse what is wrong, however often something right has passed."""

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from shape_checks import kind, once
from torch import Tensor

from nsed_torch.core.functional import quadratic_vote

RIGHT = torch.rand(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    "wrong",
    [
        (torch.rand(2, 3, 4), torch.ones(2, 4, 3, dtype=torch.bool)),
        (torch.rand(2, 3, 4), torch.ones(2, 3, 4)),
        (torch.rand(3, 4), torch.ones(3, 4, dtype=torch.bool)),
        ([0.5], RIGHT[1]),
    ],
)
def test_the_library_is_checked(wrong):
    for _ in range(2):
        quadratic_vote(*RIGHT)
        with pytest.raises(TypeCheckError):
            quadratic_vote(*wrong)


def test_results_are_checked_too():
    calls = []

    @once(typechecker=beartype)
    def first(x: Float[Tensor, "batch"], length: int) -> Float[Tensor, "batch"]:
        calls.append(length)
        return x[:length]

    for seen in range(2):
        assert first(RIGHT[0][0, 0], 4).shape == (4,)
        assert len(calls) == 2 * seen + 1
        with pytest.raises(TypeCheckError, match="return value"):
            first(RIGHT[0][0, 0], 3)


def test_what_may_hold_more_than_its_kind_tells_is_always_checked():
    assert kind({"a": 1}) is kind([1]) is kind(({"a": 1},)) is None
    assert kind("text") is str
    assert kind((RIGHT[0], None)) == kind((RIGHT[0] + 1, None)) != kind((RIGHT[0].double(), None))
