"""The smooth dual of a linear program with entropy: prices for all tasks at once, by Newton steps."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

BARRIER = 1e-12
"""Weight of the logarithmic barrier at the solution, in units of the temperature."""

STEPS = 1000
"""More than ten times what random problems have needed."""

RIDGE = 1e-13
"""Added to matrices of unit diagonal, where two rows say the same."""


@dataclass(frozen=True)
class System:
    """Maximise `gain . x + H(x)` subject to `rows x <= limits`, with equality where `equal`; the temperature is 1.

    Hidden columns are held at 0; rows that do not count are all zero.
    """

    gain: Float[Tensor, "batch column"]
    column_mask: Bool[Tensor, "batch column"]
    rows: Float[Tensor, "batch row column"]
    limits: Float[Tensor, "batch row"]
    row_mask: Bool[Tensor, "batch row"]
    equal: Bool[Tensor, "row"]

    def detach(self) -> "System":
        """Without gradients."""
        return replace(self, gain=self.gain.detach(), rows=self.rows.detach(), limits=self.limits.detach())

    def pull(self, prices: Tensor) -> Tensor:
        """Gain less price: the shares' exponents."""
        return self.gain - torch.einsum("brc,br->bc", self.rows, prices)

    def shares(self, prices: Tensor) -> Tensor:
        """The best shares at these prices."""
        return self.pull(prices).sigmoid() * self.column_mask

    def dual(self, prices: Tensor) -> Float[Tensor, "batch"]:
        """What those shares are worth, entropy included, the limits being paid for."""
        free = torch.where(self.column_mask, softplus(self.pull(prices), threshold=40), 0).sum(1)
        return free + (self.limits * prices).sum(1)

    def left(self, prices: Tensor) -> Float[Tensor, "batch row"]:
        """What the shares at these prices leave of the limits: the dual's gradient."""
        return self.limits - torch.einsum("brc,bc->br", self.rows, self.shares(prices))

    def curvature(self, prices: Tensor) -> Float[Tensor, "batch row row"]:
        """The dual's Hessian."""
        x = self.shares(prices)
        return torch.einsum("brc,bc,bsc->brs", self.rows, x * (1 - x), self.rows)


class Solution(NamedTuple):
    """Prices of the rows, what the shares leave of their limits, and for which tasks nothing meets them."""

    prices: Float[Tensor, "batch row"]
    slack: Float[Tensor, "batch row"]
    lost: Bool[Tensor, "batch"]


def attached(system: System, solution: Solution) -> Float[Tensor, "batch row"]:
    """The prices with the gradients of the implicit function theorem: one Newton step of length zero."""
    prices, slack, _ = solution
    left = system.left(prices)
    matrix = _matrix(system.detach(), prices, slack)
    return prices - _newton(matrix, (left - left.detach()) * system.row_mask)


def _matrix(system: System, prices: Tensor, slack: Tensor) -> Tensor:
    barrier = system.row_mask & ~system.equal
    # Saturated shares have no curvature left; what is added for an equality is far below any that matters.
    rest = torch.where(system.row_mask, 1e-12, 1.0)
    diagonal = torch.where(barrier, slack / prices.where(barrier, 1.0), rest)
    return system.curvature(prices) + torch.diag_embed(diagonal)


def _newton(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve for symmetric positive matrices, each scaled to a unit diagonal first."""
    root = matrix.diagonal(dim1=1, dim2=2).rsqrt()
    scaled = matrix * root[:, :, None] * root[:, None]
    factor = torch.linalg.cholesky(scaled + RIDGE * torch.eye(matrix.shape[1]).to(matrix))
    return torch.cholesky_solve((right * root)[..., None], factor)[..., 0] * root


class _Point(NamedTuple):
    """Where the solver stands: the gain in force is `warmth` of the problem's."""

    prices: Float[Tensor, "batch row"]
    slack: Float[Tensor, "batch row"]
    warmth: Float[Tensor, "batch"]
    barrier: Float[Tensor, "batch"]


def solve(system: System) -> Solution:
    """Minimise the dual `sum softplus(gain - rows^T price) + limits . price` over prices of at least 0.

    Prices of equalities have any sign. Primal-dual Newton steps on the dual with a logarithmic barrier, first at gains
    scaled down to 1, then at the whole gain, then with less and less barrier. A task is lost once its dual lies below
    anything that shares could be worth (weak duality), which proves it.

    Raises:
        RuntimeError: if that takes more than `STEPS` steps.
    """
    signed = system.row_mask & ~system.equal
    start = signed.double()
    warmth = 1 / system.gain.abs().amax(1).clamp(min=1)
    point = _Point(start, start, warmth, torch.full_like(warmth, 0.1))
    done = torch.zeros_like(warmth, dtype=torch.bool)
    lost = torch.zeros_like(done)
    for _ in range(STEPS):
        # Limits as wide as the barrier keep prices moderate where only one team meets them.
        wide = torch.where(signed, system.limits + point.barrier[:, None], system.limits)
        now = replace(system, gain=system.gain * point.warmth[:, None], limits=wide)
        moved = _step(now, point, signed)
        active = (~done)[:, None]
        point = point._replace(
            prices=torch.where(active, moved.prices, point.prices), slack=torch.where(active, moved.slack, point.slack)
        )
        worst = torch.where(now.column_mask, now.gain.clamp(max=0), 0).sum(1)
        rounding = 1e-9 * (1 + (now.limits * point.prices).abs().sum(1))
        lost |= ~done & (now.dual(point.prices) < worst - rounding)
        final = (point.warmth == 1) & (point.barrier == BARRIER)
        ready = _centred(now, point, signed)
        done |= lost | (ready & final)
        if done.all():
            return Solution(point.prices, point.slack, lost)
        point = _next_stage(point, ready & ~done)
    raise RuntimeError(f"broker: the relaxation did not converge in {STEPS} steps: raise the temperature")


def _next_stage(point: _Point, ready: Tensor) -> _Point:
    """First the full gain, by doubling; then less and less barrier."""
    warm = point.warmth == 1
    warmth = torch.where(ready & ~warm, (2 * point.warmth).clamp(max=1), point.warmth)
    lower = torch.minimum(0.2 * point.barrier, point.barrier**1.5).clamp(min=BARRIER)
    barrier = torch.where(ready & warm, lower, point.barrier)
    return _Point(point.prices * (warmth / point.warmth)[:, None], point.slack, warmth, barrier)


def _step(now: System, point: _Point, signed: Tensor) -> _Point:
    """One primal-dual Newton step with a line search on the dual, which is convex."""
    prices, slack, _, barrier = point
    safe = prices.where(signed, 1.0)
    pushed = torch.where(signed, barrier[:, None] / safe, 0)
    gradient = now.left(prices) - pushed
    move = -_newton(_matrix(now, prices, slack), gradient)
    slope = (gradient * move).sum(1)

    here = _merit(now, prices, barrier, signed)
    allowed = 1e-12 * (1 + here.abs())
    length = _to_boundary(prices, move, signed)
    for _ in range(40):
        good = _merit(now, prices + length[:, None] * move, barrier, signed) <= here + 1e-4 * length * slope + allowed
        if good.all():
            break
        length = torch.where(good, length, length / 2)
    turn = torch.where(signed, pushed - slack - slack / safe * move, 0)
    slack = slack + _to_boundary(slack, turn, signed)[:, None] * turn
    prices = prices + length[:, None] * move
    central = barrier[:, None] / prices.where(signed, 1.0)
    return point._replace(prices=prices, slack=torch.where(signed, slack.clamp(central / 1e8, central * 1e8), 0))


def _merit(now: System, prices: Tensor, barrier: Tensor, signed: Tensor) -> Tensor:
    return now.dual(prices) - barrier * prices.where(signed, 1.0).log().sum(1)


def _to_boundary(value: Tensor, move: Tensor, signed: Tensor) -> Float[Tensor, "batch"]:
    """The longest step up to 1 that leaves a hundredth of every positive entry."""
    falls = signed & (move < 0)
    longest = torch.where(falls, -0.99 * value / move.where(falls, 1.0), 1.0)
    return torch.cat([longest, longest.new_ones(len(longest), 1)], 1).amin(1).clamp(max=1)


def _centred(now: System, point: _Point, signed: Tensor) -> Bool[Tensor, "batch"]:
    """Whether the limits hold, and price times slack equals the barrier, closely enough for the present stage."""
    missed = (now.left(point.prices) - point.slack).abs()
    complementary = (point.prices * point.slack - point.barrier[:, None]).abs() * signed
    # Exponents as large as the prices are known to that many rounding errors, and no better.
    known = 1e-16 * (100 + now.gain.abs().amax(1) + point.prices.abs().amax(1))[:, None] * (1 + now.limits.abs())
    close = 0.1 * point.barrier[:, None]
    return ((missed <= close.maximum(known)) & (complementary <= close)).all(1)
