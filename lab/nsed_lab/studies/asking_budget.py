"""`-m nsed_lab.studies.asking_budget DATA_DIR OUT`: whom to ask at 40% of the cost, beside the field's rivals.

DATA_DIR holds the folders of recorded answers; OUT gets a table a set, for lab/data/small_models. Written down in
lab/pages/small_models.md.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import torch
from torch import Tensor

from nsed_lab.asking import fit_asking, fit_on_partial_teams, heard_by_all, replay, without_questions
from nsed_lab.rules.learned_votes import most_telling
from nsed_lab.studies.vote_tables import ENDING, keep_table
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.parts.ties import Ties
from nsed_torch.traces.episodes import Episodes, recorded_episodes
from nsed_torch.traces.recorded import load_recorded
from nsed_torch.traces.rounds import Rounds, all_teams
from nsed_torch.traces.splits import Split, divisions
from nsed_torch.tuning.rules import decide, known_rules

SHARE = 0.4
GYM = ["mistral-small-3.1-24b-instruct", "gemma-3-27b-it", "qwq-32b", "llama-3.3-70b-instruct"]
GYM += ["llama-4-scout", "llama-4-maverick", "deepseek-r1"]
SEVEN = ["Meta-Llama-3_1-8B-Instruct", "mathstral-7B", "Phi-3-mini-4k-instruct", "Meta-Llama-3-8B", "gemma-7b"]
SEVEN += ["Qwen1.5-7B-Chat", "Yi-6b-Chat"]
SETS = {
    "hard": ("reasoning_gym/hard", GYM, False),
    "easy": ("reasoning_gym/easy", GYM, False),
    "mmlu_pro": ("mmlu_pro", SEVEN, True),
}
"""Folder, team, and whether the length of an answer counts beside the parameters."""

PRICES = (0.0, *(2.0**power for power in range(-8, 5)))
VOTES = ("log_odds", "dawid_skene_graded", "logistic_vote", "boosted_votes")


@dataclass(frozen=True, eq=False)
class Questions:
    """A set, its agents in the order of their accuracy on what is fitted to."""

    episodes: Episodes
    rounds: Rounds
    price: Tensor  # question agent

    def ordered(self, parts: Split) -> "Questions":
        """The most accurate agent first; ties are broken by that of all that is learned from."""
        order = self.rounds.correct[parts.train].double().mean(0).argsort(descending=True, stable=True)
        learned = torch.cat([parts.train, parts.validation])
        rounds = without_questions(self.rounds.select(agents=order)).settling(Ties.ACCURACY, learned)
        return Questions(self.episodes, rounds, self.price[:, order])


class Division:
    """All methods on one division: what is chosen is chosen on the choosing part, within the budget."""

    def __init__(self, questions: Questions, parts: Split, meaning: Tensor, seed: int) -> None:
        self.q, self.parts, self.meaning = questions.ordered(parts), parts, meaning
        self.learned = torch.cat([parts.train, parts.validation])
        self.whole = float(self.q.price[self.learned].sum(1).mean())
        self.right, self.agents = self.q.rounds.correct, self.q.rounds.agents
        self.teams = all_teams(len(self.agents))
        self.team_price = self.q.price @ self.teams.double().T
        self.common = torch.stack([self.q.rounds.plurality_right(team.expand_as(self.right)) for team in self.teams], 1)
        train, chooses = parts.train, parts.validation
        self.cell = fit_on_partial_teams(self.q.rounds, train, chooses, seed=seed)

    def best(self, tried: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Of whole columns of right and cost the most accurate within the budget, the cheapest of equals."""
        found = []
        for right, cost in tried:
            chosen = right[self.parts.validation].mean().item(), cost[self.parts.validation].mean().item()
            if chosen[1] <= SHARE * self.whole:
                found.append((chosen[0], -chosen[1], len(found), right, cost))
        return max(found, key=lambda one: one[:3])[3:]

    # One call.

    def member(self) -> tuple[Tensor, Tensor]:
        """The most accurate member that the budget pays for."""
        return self.best((self.right[:, i].double(), self.q.price[:, i]) for i in range(len(self.agents)))

    def routed(self, chances: Callable[[Tensor, Tensor], Iterator[Tensor]]) -> tuple[Tensor, Tensor]:
        """One call by chances of being right less a price a unit of cost; `chances` of some learned from others."""
        cost = self.q.price[self.learned].mean(0) / self.whole
        asked = torch.cat([self.parts.validation, self.parts.test])

        def tried() -> Iterator[tuple[Tensor, Tensor]]:
            first = chances(self.parts.train, self.parts.validation)
            last = chances(self.learned, self.parts.test)
            for one, other in zip(first, last, strict=True):
                for price in PRICES:
                    who = (torch.cat([one, other]) - price * cost).argmax(1)
                    right, spent = torch.zeros(2, len(self.right), dtype=torch.float64)
                    right[asked] = self.right[asked].gather(1, who[:, None])[:, 0].double()
                    spent[asked] = self.q.price[asked].gather(1, who[:, None])[:, 0]
                    yield right, spent

        return self.best(tried())

    def by_family(self, known: Tensor, asked: Tensor) -> Iterator[Tensor]:
        """Chances by the question's category."""
        names = self.q.episodes.categories
        overall = self.right[known].double().mean(0)
        rows: dict[str, list[int]] = {}
        for i in known.tolist():
            rows.setdefault(names[i], []).append(i)
        means = {name: self.right[those].double().mean(0) for name, those in rows.items()}
        yield torch.stack([means.get(names[i], overall) for i in asked.tolist()]) + 1e-6 * overall

    def nearest(self, known: Tensor, asked: Tensor) -> Iterator[Tensor]:
        """Chances by the nearest questions, of several numbers."""
        unit = torch.nn.functional.normalize(self.meaning, dim=1)
        near = (unit[asked] @ unit[known].T).topk(min(300, len(known)), dim=1).indices
        for count in (10, 30, 100, 300):
            yield self.right[known][near[:, :count]].double().mean(1)

    def regressed(self, known: Tensor, asked: Tensor) -> Iterator[Tensor]:
        """Chances by a logistic regression of each agent."""
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - slow to load

        columns = []
        for agent in range(len(self.agents)):
            model = LogisticRegression(max_iter=1000).fit(self.meaning[known].numpy(), self.right[known, agent].numpy())
            columns.append(torch.tensor(model.predict_proba(self.meaning[asked].numpy())[:, 1]))
        yield torch.stack(columns, 1)

    def fallback(self) -> tuple[Tensor, Tensor]:
        """In the order of accuracy from some member on, till one answers."""

        def tried() -> Iterator[tuple[Tensor, Tensor]]:
            for first, most in itertools.product(range(len(self.agents)), range(1, len(self.agents) + 1)):
                answered = (self.q.rounds.classes >= 0)[:, first : first + most]
                before = answered.cumsum(1) - answered.long()
                asks = before == 0
                right = (self.right[:, first : first + most] & answered & asks).any(1).double()
                yield right, (self.q.price[:, first : first + most] * asks).sum(1)

        return self.best(tried())

    # Several at once.

    def subset(self) -> int:
        """The team whose plurality is best within the budget."""
        rows, cost = self.parts.validation, self.team_price
        paid = cost[rows].mean(0) <= SHARE * self.whole
        return int(self.common[rows].mean(0).masked_fill(~paid, -1).argmax())

    def greedy(self, *, told: bool) -> int:
        """Members one after the other while the budget pays: by what they tell, or by their accuracy."""
        fit = self.q.episodes.select(self.parts.train)
        place = {name: i for i, name in enumerate(self.agents)}
        prices = self.q.price[self.parts.validation].mean(0)
        chosen: list[int] = []
        while True:
            left = SHARE * self.whole - float(prices[chosen].sum())
            free = [i for i in range(len(self.agents)) if i not in chosen and float(prices[i]) <= left]
            if not free:
                return sum(1 << i for i in chosen)
            if told:
                names = [fit.agents.index(self.agents[i]) for i in chosen]
                among = [fit.agents.index(self.agents[i]) for i in free]
                chosen.append(place[fit.agents[most_telling(fit, names, among)]])
            else:
                chosen.append(free[0])

    def voted(self, rule: str, teams: Sequence[int]) -> tuple[Tensor, Tensor]:
        """A rule of the field on the best of some teams."""

        def tried() -> Iterator[tuple[Tensor, Tensor]]:
            for team in dict.fromkeys(teams):
                members = self.teams[team]
                if int(members.sum()) == 1:
                    yield self.right[:, members][:, 0].double(), self.team_price[:, team]
                    continue
                inside = self.q.episodes.without(
                    [n for n, there in zip(self.agents, members, strict=True) if not there]
                )
                right = torch.zeros(len(self.right), dtype=torch.float64)
                for known, asked in ((self.parts.train, self.parts.validation), (self.learned, self.parts.test)):
                    right[asked] = decide(known_rules()[rule], inside.select(known), inside.select(asked)).double()
                yield right, self.team_price[:, team]

        return self.best(tried())

    # One after the other.

    def stages(self) -> Iterator[tuple[int, int]]:
        """A team, and the team that it grows to: by one member, or everybody."""
        everybody = len(self.teams) - 1
        for first in range(1, everybody):
            if float(self.team_price[self.parts.validation, first].mean()) <= SHARE * self.whole:
                yield from ((first, first | 1 << i) for i in range(len(self.agents)) if not first >> i & 1)
                yield first, everybody

    def agreement(self) -> tuple[Tensor, Tensor]:
        """A team answers where it agrees; otherwise the plurality of a larger one."""
        classes = self.q.rounds.classes

        def tried() -> Iterator[tuple[Tensor, Tensor]]:
            for first, then in self.stages():
                said = classes[:, self.teams[first]]
                agree = (said == said[:, :1]).all(1) & (said[:, 0] >= 0)
                yield self.staged(self.common, self.common, first, then, agree)

        return self.best(tried())

    def escalation(self) -> tuple[Tensor, Tensor]:
        """The cell answers with a team where its lead is enough; otherwise with a larger one."""
        heard, right = heard_by_all(self.q.rounds, self.cell, self.teams)
        lead = heard.lead - heard.second.clamp(min=0).nan_to_num(neginf=0)

        def tried() -> Iterator[tuple[Tensor, Tensor]]:
            for first, then in self.stages():
                levels = lead[self.parts.validation, first].quantile(torch.linspace(0, 1, 21, dtype=lead.dtype))
                for enough in levels.unique().tolist():
                    yield self.staged(right, right, first, then, lead[:, first] >= enough)

        return self.best(tried())

    def staged(self, early: Tensor, late: Tensor, first: int, then: int, stops: Tensor) -> tuple[Tensor, Tensor]:
        """Right and cost of a team that grows where it does not stop."""
        right = torch.where(stops, early[:, first], late[:, then]).double()
        return right, torch.where(stops, self.team_price[:, first], self.team_price[:, then])

    def broker(self) -> tuple[Tensor, Tensor]:
        """The learned broker that the budget pays for."""
        fit = fit_asking(self.cell, self.q.rounds, self.parts.train, self.parts.validation, ridges=[30.0])
        ended = replay(fit.within(SHARE * self.whole), self.cell, self.q.rounds)
        return ended.right, ended.cost

    def methods(self) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
        """Name -> right and cost of every question; of the test part they count."""
        told, dear, best = self.greedy(told=True), self.greedy(told=False), self.subset()
        everybody = len(self.teams) - 1
        yield "escalation", self.escalation()
        yield "broker", self.broker()
        yield "member", self.member()
        yield "family", self.routed(self.by_family)
        yield "knn", self.routed(self.nearest)
        yield "logistic_router", self.routed(self.regressed)
        yield "fallback", self.fallback()
        yield "plurality", (self.common[:, best], self.team_price[:, best])
        yield "information", self.voted("logistic_vote", [told])
        for rule in VOTES:
            yield rule, self.voted(rule, [best, told, dear])
        yield "agreement", self.agreement()
        yield "all_plurality", (self.common[:, everybody], self.team_price[:, everybody])
        yield "all_cell", (self.q.rounds.right(self.cell), self.team_price[:, everybody])
        largest = int(self.q.price[self.learned].mean(0).argmax())
        yield "largest", (self.right[:, largest].double(), self.q.price[:, largest])
        yield "any", (self.right.any(1).double(), self.team_price[:, everybody])


def embedded(questions: Sequence[str], dim: int = 256) -> Tensor:
    """TF-IDF of words by singular values; nothing but the questions is read."""
    from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415 - slow to load
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415

    words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(questions)
    return torch.tensor(TruncatedSVD(min(dim, words.shape[1] - 1), random_state=0).fit_transform(words)).double()


def main(root: Path, out: Path, names: Mapping[str, tuple[str, list[str], bool]] = SETS) -> None:
    """Read, decide, store."""
    for name, (folder, agents, by_length) in names.items():
        began = process_time()
        answers = load_recorded(root / folder, agents=agents)
        episodes = recorded_episodes(answers, HashedEncoder(8))
        price = answers.cost if by_length else answers.parameters.expand(len(answers), -1)
        rounds = Rounds.of(episodes)
        rounds = dataclasses.replace(rounds, seat_cost=torch.stack([price, torch.zeros_like(price)], -1))
        meaning = embedded([task.question for task in answers.tasks])
        right: dict[str, Tensor] = {}
        shares: dict[str, float] = {}
        for seed, parts in enumerate(divisions(episodes.ids, (0.6, 0.2, 0.2), 5)):
            division = Division(Questions(episodes, rounds, price.double()), parts, meaning, seed)
            for method, (hits, cost) in division.methods():
                known = right.setdefault(method, torch.zeros(len(episodes), dtype=torch.bool))
                known[parts.test] = hits[parts.test] >= 0.5
                shares[method] = shares.get(method, 0.0) + float(cost[parts.test].sum()) / division.whole / len(
                    episodes
                )
            print(f"{name}: division {seed}, {process_time() - began:.0f} s")
        keep_table(out / f"{name}_40{ENDING}", {m: v.tolist() for m, v in right.items()}, [""] * len(episodes), shares)
        for method, hits in right.items():
            print(f"  {method:16} {hits.double().mean():.4f} at {shares[method]:.3f}")
        print(f"{name}: {process_time() - began:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
