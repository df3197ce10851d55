import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.memory import MemoryState, remember


def test_empty_state_has_no_direction():
    state = MemoryState.empty(2, 3, 4, torch.float64)
    assert state.embeddings.shape == (2, 3, 4)
    assert state.hidden().dtype == torch.float64
    assert not state.hidden().any()


def test_slots_carry_everything_along():
    state = MemoryState.empty(1, 2, 1)
    enter = torch.tensor([[[5.0], [6.0], [7.0]]])
    everything = torch.ones(1, 3, dtype=torch.bool)
    gate = torch.full((1, 2), 0.5)
    state, source = remember(
        state, gate, enter, torch.tensor([[0.2, 0.7, 0.1]]), torch.tensor([[1.0, 2.0, 3.0]]), everything
    )
    assert source.tolist() == [[3, 2]]
    assert state.embeddings[0, :, 0].tolist() == [6, 5]
    assert state.support.tolist() == [[2, 1]]
    assert state.age.tolist() == [[0, 0]]
    torch.testing.assert_close(state.hidden(), torch.tensor([[(0.7 * 6 + 0.2 * 5) / 0.9]]))
    state, source = remember(state, gate, enter, torch.tensor([[0.9, 0.05, 0.05]]), torch.zeros(1, 3), everything)
    assert source.tolist() == [[2, 0]]
    assert state.age.tolist() == [[0, 1]]
    torch.testing.assert_close(state.retention, torch.tensor([[0.9, 0.35]]))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64]))
def test_bounded_ordered_and_consistent(slots, proposals, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    state = MemoryState.empty(3, slots, 2, dtype)
    for _ in range(3):
        before = state
        mask = torch.rand(3, proposals, generator=generator) < 0.7
        retention = torch.rand(3, proposals, generator=generator, dtype=dtype)
        embeddings = torch.randn(3, proposals, 2, generator=generator, dtype=dtype)
        gate = torch.rand(3, slots, generator=generator, dtype=dtype)
        state, source = remember(state, gate, embeddings, retention, retention, mask)
        assert state.mask.shape == (3, slots)
        assert torch.equal(state.mask, source >= 0)
        assert torch.equal(state.mask.sum(1), (before.mask.sum(1) + mask.sum(1)).clamp(max=slots))
        assert (state.retention[:, :-1] >= state.retention[:, 1:] - 1e-5).all()
        assert not state.embeddings[~state.mask].any()
        for b in range(3):
            chosen = source[b][state.mask[b]]
            assert len(chosen.unique()) == len(chosen)
            pool = torch.cat([before.embeddings, embeddings], 1)[b]
            assert torch.equal(pool[chosen], state.embeddings[b][state.mask[b]])
