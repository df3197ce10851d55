"""Thinned ratings: of all judges they are dense, and what is asked for is what the design says."""

import numpy as np
import torch

from nsed_lab.studies.sparse import AGENTS, asked, drawn_answers, outcome, planted


def test_designs_ask_evenly_and_all_of_it_from_the_last_k_on():
    classes = drawn_answers(4).classes
    source, count = asked(classes, 3)
    assert count == 4 * AGENTS * 3
    assert ((source >= 0).sum(1) == 3).all()
    assert ((source >= 0).sum(2) == 3).all()
    dense, everything = asked(classes, AGENTS - 1)
    assert everything == 4 * AGENTS * (AGENTS - 1)
    assert (dense.diagonal(axis1=1, axis2=2) == -1).all()
    once, fewer = asked(classes, AGENTS, once=True)  # of a shared answer each author may be a judge
    assert fewer < everything
    assert np.array_equal(once >= 0, dense >= 0)


def test_judges_who_know_elect_what_is_right_and_random_ones_do_not():
    answers = drawn_answers(60)
    there = answers.right.any(1)
    source, _ = asked(answers.classes, 3)
    sharp = outcome(answers, planted(answers, 20.0), source)
    assert (sharp == there).all()
    assert outcome(answers, torch.zeros(60, AGENTS, AGENTS).double(), source).sum() < there.sum()
