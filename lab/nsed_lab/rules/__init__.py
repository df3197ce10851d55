"""The field's own rules for combining recorded answers, for `nsed tune rules=[...]`."""

from nsed_lab.rules.crowd import Crowd
from nsed_lab.rules.learned_votes import boosted_reading, boosted_votes, logistic_vote, mutual_information
from nsed_lab.rules.routers import best_by_category, knn_router, logistic_router
from nsed_lab.rules.weighted_votes import log_odds, optimal_weight, optimal_weight_pseudo, surprising_popularity
from nsed_torch.tuning.rules import Rule

RULES: dict[str, Rule] = {
    "best_by_category": best_by_category,
    "knn_router": knn_router,
    "logistic_router": logistic_router,
    "log_odds": log_odds,
    "optimal_weight": optimal_weight,
    "optimal_weight_pseudo": optimal_weight_pseudo,
    "surprising_popularity": surprising_popularity,
    "dawid_skene": Crowd("DawidSkene"),
    "dawid_skene_graded": Crowd("DawidSkene", graded=True),
    "one_coin_dawid_skene": Crowd("OneCoinDawidSkene"),
    "wawa": Crowd("Wawa", skills=True),
    "zero_based_skill": Crowd("ZeroBasedSkill", skills=True),
    "mace": Crowd("MACE", options={"n_restarts": 1}),
    "logistic_vote": logistic_vote,
    "mutual_information": mutual_information,
    "boosted_votes": boosted_votes,
    "boosted_reading": boosted_reading,
}
"""By name, routers first, then votes, models of crowds and learners."""
