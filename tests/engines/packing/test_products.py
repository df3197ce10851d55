"""The other way round must be the same product."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from nsed_torch.engines.packing.products import MOST_ROWS, computing, exact_product, thin_product, thin_products


@given(
    st.lists(st.integers(1, 5), max_size=3),
    st.integers(0, MOST_ROWS + 2),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.booleans(),
)
def test_it_is_the_linear_layer_for_any_shape(shape, rows, bias, dtype, learning):
    layer = nn.Linear(7, 3, bias=bias, dtype=dtype)
    x = torch.randn(*shape, rows, 7).to(dtype)
    with torch.set_grad_enabled(learning):
        got = thin_product(layer, x)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    assert got.shape == expected.shape
    assert got.is_contiguous()
    assert got.requires_grad == learning
    assert_close(got, expected.detach() if not learning else expected)


@given(
    st.lists(st.integers(0, 5), unique=True, max_size=6),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([torch.bfloat16, torch.float16]),
)
def test_some_columns_are_spared_the_rounding_of_half_precision(columns, rows, bias, dtype):
    layer = nn.Linear(7, 6, bias=bias, dtype=dtype)
    x = torch.randn(2, rows, 7).to(dtype)
    got = exact_product(columns, layer, x)
    assert got.dtype == torch.float32
    whole = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
    assert_close(got[..., columns], whole[..., columns].float(), atol=1e-6, rtol=1e-5)
    others = [column for column in range(6) if column not in columns]
    assert_close(got[..., others], layer(x).float()[..., others])


def test_gradients_reach_what_is_exact():
    layer = nn.Linear(7, 6, dtype=torch.bfloat16)
    x = torch.randn(4, 7, dtype=torch.bfloat16, requires_grad=True)
    exact_product([5, 1], layer, x)[:, [1, 5]].sum().backward()
    assert_close(x.grad, layer.weight[[1, 5]].float().sum(0).to(x).expand(4, -1))
    assert layer.weight.grad[[1, 5]].any()
    assert not layer.weight.grad[[0, 2, 3, 4]].any()


def test_a_single_vector_is_a_row():
    layer = nn.Linear(7, 3)
    with torch.no_grad():
        assert_close(thin_product(layer, torch.ones(7)), layer(torch.ones(7)))


def test_gradients_are_those_of_the_linear_layer():
    layer, x = nn.Linear(7, 3), torch.randn(4, 7, requires_grad=True)
    inputs = x, layer.weight, layer.bias
    with thin_products(layer):
        got = torch.autograd.grad(layer(x).square().sum(), inputs)
    for a, b in zip(got, torch.autograd.grad(layer(x).square().sum(), inputs), strict=True):
        assert_close(a, b, rtol=0, atol=0)


def test_layers_are_as_before_even_after_an_exception():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    with thin_products(model):
        assert [("forward" in vars(layer)) for layer in model] == [True, False, True]
    with pytest.raises(KeyError), thin_products(model):
        raise KeyError
    assert not any("forward" in vars(layer) for layer in model)


def test_a_forward_of_a_layers_own_is_left_alone():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[0].forward = own = lambda x: x + 1
    with torch.no_grad(), thin_products(model):
        assert model[0].forward is own
        assert_close(model[0](torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert model[0].forward is own
    with computing([model[0]], lambda _, x: x - 1):
        assert_close(model[0](torch.ones(2, 3)), torch.zeros(2, 3))
    assert model[0].forward is own
