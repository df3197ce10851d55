from types import FunctionType

from nsed_torch.core.functional import memory, tally, vote
from nsed_torch.parts import fatigue_law as law
from nsed_torch.parts import gates, votes

# Every public function of the modules, also those that the package does not show.
NAMES = [
    name
    for module in (law, memory, tally, vote, votes, gates)
    for name, value in vars(module).items()
    if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
]

CHILD = """
import sys
import torch
from nsed_torch.core.functional import memory, tally, vote
from nsed_torch.parts import fatigue_law as law, gates, votes
torch.manual_seed(0)
R = torch.float64
b, v, p, k, d = 2, 3, 4, 3, 5
r, m = torch.rand(b, v, p, dtype=R) * 2 - 1, torch.rand(b, v, p) < 0.7
e, h, x, c = torch.randn(b, p, d, dtype=R), *torch.randn(3, b, d, dtype=R)
slots, ret, full = torch.randn(b, k, d, dtype=R), torch.rand(b, k, dtype=R), torch.ones(b, k, dtype=torch.bool)
ones, s, w = torch.ones(b, v, dtype=R), torch.randn(b, p, dtype=R), torch.tensor([1, -1])
there, phi, t = torch.ones(b, p, dtype=torch.bool), torch.randn(b, k, 4, dtype=R), torch.rand(b, 3, dtype=R)
number, same = torch.tensor(0.3, dtype=R), torch.tensor([[0, 1, 0, -1]] * b)
calls = {
    **{name: (r, m) for name in sys.argv[1:] if name.endswith("_vote")},
    "vote_mask": (torch.tensor([[0, 1]] * b), torch.tensor([[1, 0]] * b), torch.ones(b, 2, dtype=torch.bool)),
    "calibrate": (r, m, ones, ones), "controversy": (r, m), "cosine": (e, h[:, None]),
    "author_weight": (ones, torch.tensor([[0, 1, 2]] * b), torch.tensor([[1, 0]] * b)),
    "trust": (ones[0], torch.randn(v, 2 * d, dtype=R), torch.cat([x, h], -1), torch.tensor([[0, 1, 2]] * b), m.any(-1)),
    "same_answer": (there, same), "answer_support": (s, tally.same_answer(there, same)),
    "consensus": (s, there, number), "conviction": (s, w), "decisiveness": (s,), "all_negative": (s, w),
    "forget_gate": (phi, torch.randn(4, dtype=R), number), "hidden_state": (slots, ret, full),
    "entry_gate": (phi, torch.randn(4, dtype=R)),
    "update_memory": (ret, full, ret, s.softmax(-1), there), "support": (r, m, ones),
    "held": (torch.tensor([[[2, 3, -1], [0, 4, 1]]] * b), 2),
    "utility": (t, 0.5, 0.3, 0.01), "marginal_utility": (t, 0.5, 0.3, 0.01), "optimal_round": (t, 0.5, 0.01),
    "lambert_w0": (t,), "evidence": (t, 0.5, 0.3, 0.01),
}
named = {
}
for name in sys.argv[1:]:
    function = next(getattr(home, name) for home in (law, memory, tally, vote, votes, gates) if hasattr(home, name))
    args, kwargs = named[name] if name in named else (calls[name], {})
    args = [a.requires_grad_() if torch.is_tensor(a) and a.is_floating_point() and a.is_leaf else a for a in args]
    got = torch.compile(function, fullgraph=True, backend="eager")(*args, **kwargs)
    torch.testing.assert_close(got, function(*args, **kwargs))
"""


def test_every_function_compiles_as_one_graph(plain_python):
    # in a child process: the type checks that pytest hooks in cannot be traced
    assert len(NAMES) > 30
    done = plain_python(CHILD, *NAMES, has=["torch._dynamo"])
    assert done.returncode == 0, done.err
