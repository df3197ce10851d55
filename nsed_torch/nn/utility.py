"""What an agent is worth in a role, as far as task, state and track record tell; trained utilities as files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from nsed_torch.nn.telemetry import FEATURES
from nsed_torch.records.files import write_bytes

_ABOUT = "nsed_utility"


class Utility(nn.Module):
    """Utilities `u_ar = 1 + b_ar + w_ar . [x; h] + v_r . f_a`, all one at the start. Ours.

    With x the task embedding, h the hidden state and f an agent's telemetry. Utilities of one make a broker seat as
    many agents as its budgets pay for, which is what an untrained one should do. v is shared by all agents, so a track
    record counts alike for whoever has it. `agent_names` and `encoder`, the identity of what embeds tasks, are None
    until somebody knows them; a saved utility does.

    Args:
        agents: size of the pool.
        roles: number of roles.
        dim: width of task embedding and hidden state.
        features: width of the telemetry.

    Raises:
        ValueError: if a size is below 1 (features: 0).
    """

    agent_names: tuple[str, ...] | None = None
    encoder: Mapping[str, Any] | None = None

    def __init__(self, agents: int, roles: int, dim: int, *, features: int = len(FEATURES)) -> None:
        super().__init__()
        if min(agents, roles, dim) < 1 or features < 0:
            raise ValueError(
                "utility: expected agents, roles and dim of at least 1 and features of at least 0, "
                f"got {agents}, {roles}, {dim} and {features}"
            )
        self.bias = nn.Parameter(torch.zeros(agents, roles))
        self.weight = nn.Parameter(torch.zeros(agents, roles, 2 * dim))
        self.telemetry_weight = nn.Parameter(torch.zeros(roles, features))

    def forward(
        self,
        task: Float[Tensor, "batch dim"],
        telemetry: Float[Tensor, "*batch agent feature"],
        hidden: Float[Tensor, "batch dim"] | None = None,
    ) -> Float[Tensor, "batch agent role"]:
        """Utilities for a broker.

        Args:
            task: embeddings of the tasks.
            telemetry: features of the agents, `Telemetry.features`; one for all tasks, or one a task.
            hidden: the state after the rounds so far; zero before the first, as is None.
        """
        context = torch.cat([task, torch.zeros_like(task) if hidden is None else hidden], dim=-1)
        fit = torch.einsum("bd,ard->bar", context, self.weight)
        return 1 + self.bias + fit + telemetry.to(task.dtype) @ self.telemetry_weight.T

    def check(self, agents: Sequence[str], encoder: Mapping[str, Any]) -> None:
        """Refuse to speak of agents or embeddings that it was not trained on; what it does not know it lets pass.

        Args:
            agents: names of a team, in its order.
            encoder: identity of what embeds its tasks.

        Raises:
            ValueError: says what it was trained on.
        """
        if self.agent_names not in {None, tuple(agents)}:
            known = ", ".join(self.agent_names or ())
            raise ValueError(f"utility: expected the agents {known}, got {', '.join(agents)}: load it for them")
        if self.encoder is not None and dict(self.encoder) != dict(encoder):
            expected, got = json.dumps(dict(self.encoder)), json.dumps(dict(encoder))
            raise ValueError(f"utility: expected the encoder {expected}, got {got}: choose that it was trained with")

    def save_pretrained(self, path: str | Path) -> None:
        """Write one safetensors file, names of agents and encoder in its header, whole or not at all.

        Raises:
            ValueError: unless it knows the names of its agents and its encoder.
            OSError: if it cannot be written.
        """
        if self.agent_names is None or self.encoder is None or len(self.agent_names) != len(self.bias):
            got = f"{self.agent_names} and {self.encoder}"
            raise ValueError(f"utility: expected agent_names and encoder to save with it, got {got}: set both")
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        # All in one entry, for the order of entries changes from run to run.
        about = json.dumps({"agents": list(self.agent_names), "encoder": dict(self.encoder)}, sort_keys=True)
        write_bytes(Path(path).expanduser(), save(tensors, metadata={_ABOUT: about}))

    @classmethod
    def from_pretrained(cls, path: str | Path, *, agents: Sequence[str] | None = None) -> "Utility":
        """The utility that `save_pretrained` wrote, in its dtype, on the CPU.

        Args:
            path: the file.
            agents: names of a team out of the saved agents, in its order; all, as saved, if None.

        Raises:
            ValueError: in one line with the file, if it is missing, corrupt or something else, or does not know an
                agent.
        """
        path = Path(path).expanduser()
        try:
            with safe_open(path, framework="pt") as file:
                about = json.loads(file.metadata()[_ABOUT])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            known = [str(name) for name in about["agents"]]
            _, roles, width = tensors["weight"].shape
            saved = cls(len(known), roles, width // 2, features=tensors["telemetry_weight"].shape[1])
            saved.to(tensors["weight"].dtype).load_state_dict(tensors, strict=True)
            saved.agent_names, saved.encoder = tuple(known), dict(about["encoder"])
        except OSError as error:
            raise ValueError(f"{path}: expected a trained utility, got none there: check the path") from error
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: not a trained utility ({reason}): train it again") from error
        return saved if agents is None else saved._team(agents, path)

    def _team(self, agents: Sequence[str], path: Path) -> "Utility":
        known = list(self.agent_names or ())
        if not agents or len(set(agents)) < len(agents) or not set(agents) <= set(known):
            got = ", ".join(agents) or "none"
            raise ValueError(f"{path}: expected different agents out of {', '.join(known)}, got {got}: train it anew")
        rows = [known.index(name) for name in agents]
        self.bias = nn.Parameter(self.bias.detach()[rows])
        self.weight = nn.Parameter(self.weight.detach()[rows])
        self.agent_names = tuple(agents)
        return self

    def extra_repr(self) -> str:
        """What `print` shows."""
        agents, roles, width = self.weight.shape
        return f"agents={agents}, roles={roles}, dim={width // 2}, features={self.telemetry_weight.shape[1]}"
