"""The cell among PyTorch's own tools: data parallelism, export, files of weights alone, dtypes, and clear refusals.

Child processes, where the type checks that pytest hooks in cannot be traced or would answer first.
"""

import pytest
import torch

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.trust import Calibration
from nsed_torch.parts.gates import NoteGate

DRAWN = """
import torch
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.memory import MemoryState
def drawn(batch, seed):
    g = torch.Generator().manual_seed(seed)
    ratings = torch.rand(batch, 3, 3, generator=g) * 2 - 1
    mask = ~torch.eye(3, dtype=torch.bool).expand(batch, 3, 3)
    return torch.randn(batch, 3, 8, generator=g), ratings, mask.clone(), torch.randn(batch, 8, generator=g)
"""

PARALLEL = """
import os, sys
import torch.distributed as dist
other = os.fork()
rank = int(other == 0)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
torch.manual_seed(0)
cell = torch.nn.parallel.DistributedDataParallel(ConsensusCell(8, 3))
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
for step in range(4):
    output, _ = cell(*drawn(4, 10 * step + rank))
    optimizer.zero_grad()
    (-output.consensus[:, 0].log().mean()).backward()
    optimizer.step()
own = torch.cat([p.detach().flatten() for p in cell.parameters()])
both = [torch.zeros_like(own) for _ in range(2)]
dist.all_gather(both, own)
assert torch.equal(*both) and cell.module.trust.bias.any()
dist.destroy_process_group()
if other:
    assert os.waitpid(other, 0)[1] == 0
"""

EXPORT = """
import io
cell, batch = ConsensusCell(8, 4), torch.export.Dim("batch")
axes = ({0: batch},) * 4
shapes = (*axes, MemoryState(*({0: batch},) * 5))
program = torch.export.export(cell, (*drawn(2, 0), MemoryState.empty(2, 4, 8)), dynamic_shapes=shapes)
file = io.BytesIO()
torch.export.save(program, file)
file.seek(0)
program = torch.export.load(file).module()
for size in (1, 2, 5):
    state = other = MemoryState.empty(size, 4, 8)
    for round in range(3):
        args = drawn(size, round)
        (expected, state), (found, other) = cell(*args, state), program(*args, other)
        torch.testing.assert_close(tuple(found), tuple(expected))
        torch.testing.assert_close(tuple(other), tuple(state))
assert type(other) is MemoryState
"""


def finished(done):
    assert done.returncode == 0, done.err


def test_two_processes_train_one_cell(tmp_path, plain_python):
    """Plain DistributedDataParallel, which wants a gradient for every parameter at every step."""
    finished(plain_python(DRAWN + PARALLEL, tmp_path / "meeting"))


def test_it_is_exported_with_any_batch_and_the_state_as_an_input(plain_python):
    finished(plain_python(DRAWN + EXPORT, has=["torch._dynamo"]))


def test_files_of_weights_alone_may_hold_a_state_and_an_output(tmp_path):
    cell = ConsensusCell(2, 2)
    ratings, mask = torch.rand(1, 2, 2), ~torch.eye(2, dtype=torch.bool)[None]
    output, state = cell(torch.rand(1, 2, 2), ratings, mask, torch.rand(1, 2))
    torch.save({"state": state, "output": output}, tmp_path / "run.pt")
    kept = torch.load(tmp_path / "run.pt", weights_only=True)
    assert torch.equal(kept["state"].retention, state.retention)
    assert torch.equal(kept["output"].consensus, output.consensus)


def test_no_two_tensors_of_an_empty_state_are_one():
    """An exported program takes inputs that are the same tensor for one input."""
    assert len({id(tensor) for tensor in MemoryState.empty(1, 2, 3)}) == 5


@pytest.mark.parametrize("cell_dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_inputs_come_in_the_dtype_of_the_cell(cell_dtype, dtype):
    cell, state = ConsensusCell(4, 3, gate=NoteGate(), calibration=Calibration(3)).to(cell_dtype), None
    g = torch.Generator().manual_seed(0)
    mask = ~torch.eye(3, dtype=torch.bool)[None]
    for _ in range(3):
        embeddings, ratings, task = (torch.rand(1, *size, generator=g).to(dtype) for size in ((3, 4), (3, 3), (4,)))
        output, state = cell(embeddings, ratings, mask, task, state)
    floats = [tensor for tensor in (*output, *state) if tensor.is_floating_point()]
    assert {tensor.dtype for tensor in floats} == {cell_dtype}
    (output.consensus[:, 0].sum() + state.retention.sum()).backward()
    assert all(tensor.isfinite().all() for tensor in (*floats, *(p.grad for p in cell.parameters())))


REFUSED = """
cell = ConsensusCell(8, 3)
embeddings, ratings, mask, task = drawn(2, 0)
calls = {
    "vote_mask: expected booleans, True where it counts, got torch.float32: pass vote_mask.bool()":
        lambda: cell(embeddings, ratings, mask.float(), task),
    "got (3, 8) and (3, 3): add an axis for the batch with [None]":
        lambda: cell(embeddings[0], ratings[0], mask[0], task[0]),
    "expected embeddings of width 8, got 5: build the cell for it":
        lambda: cell(embeddings[..., :5], ratings, mask, task),
    "ratings: expected a tensor of shape (2, 3, 3), got (2, 3, 2)":
        lambda: cell(embeddings, ratings[..., :2], mask, task),
    "task: expected a tensor of shape (2, 8), got (1, 8)": lambda: cell(embeddings, ratings, mask, task[:1]),
    "classes: expected a tensor of shape (2, 3), got (3,)":
        lambda: cell(embeddings, ratings, mask, task, classes=torch.tensor([0, 1, 0])),
    "expected ratings in [-1, 1], got one of size 70: scale them":
        lambda: cell(embeddings, torch.full_like(ratings, 70.0), mask, task),
    "expected a state of (batch, slots) = (2, 4), got (1, 4)":
        lambda: cell(embeddings, ratings, mask, task, MemoryState.empty(1, 4, 8)),
    "expected at most 2 voters, got 3: raise agents": lambda: ConsensusCell(8, 2)(embeddings, ratings, mask, task),
}
for line, call in calls.items():
    try:
        call()
    except ValueError as error:
        assert line in str(error) and "\\n" not in str(error), f"expected {line!r}, got {error}"
    else:
        raise AssertionError(f"not refused: {line}")
assert ConsensusCell(8, 3, gate="none")(embeddings, ratings, mask, task)[0].winner.shape == (2,)
"""


def test_what_a_newcomer_gets_wrong_is_one_line(plain_python):
    finished(plain_python(DRAWN + REFUSED))
