"""What a phase is measured against is the same work done plainly, and leaves the engine as it was."""

import pytest
import torch

from nsed_torch.agents import Decoding, LikelihoodRequest, Prompts, RatingScale, Weights, load_backbone
from nsed_torch.evaluation.speed import conduct, phases, whole
from nsed_torch.evaluation.speed.plain import PlainEngine, decode_bare, write_together
from nsed_torch.evaluation.speed.requests import (
    PREFIX,
    give_adapters,
    propose_requests,
    questions,
    rate_requests,
    unstoppable,
)
from nsed_torch.records import Task

GREEDY = Decoding(max_new_tokens=4, temperature=0)


@pytest.fixture
def engine(tiny_folder):
    return load_backbone(Weights("tiny", path=str(tiny_folder)), dtype="float32")


def test_plain_answers_and_ratings_are_the_engines(engine):
    names = give_adapters(engine, 2)
    plain = PlainEngine(engine)
    asked = propose_requests(Prompts(), 2, [None, *names], GREEDY)
    with unstoppable(engine):
        ours, theirs = engine.generate(asked), plain.generate(asked)
        assert [g.text for g in theirs] == [g.text for g in ours]
        assert {g.completion_tokens for g in ours + theirs} == {GREEDY.max_new_tokens}
        together = write_together(engine, asked[2:4])
        assert [engine.chat.tokenizer.decode(row, skip_special_tokens=True).strip() for row in together] == [
            g.text for g in ours[2:4]
        ]
        decode_bare(engine, asked)
    assert len({g.text for g in ours}) > 1
    judged = rate_requests(Prompts(), engine, 2, 2, [None, *names], RatingScale())
    for mine, other in zip(engine.rate(judged), plain.rate(judged), strict=True):
        assert other.values == pytest.approx(mine.values, abs=1e-4)
    texts = ("one", "twenty-two", "")
    weighed = [LikelihoodRequest("a", asked[0].messages, texts, adapter=name) for name in (None, *names)]
    for mine, other in zip(engine.measure(weighed), plain.measure(weighed), strict=True):
        assert other.values == pytest.approx(mine.values, rel=1e-4)
    assert not any(p.requires_grad for p in engine.parameters())


def test_no_stop_token_of_the_authors_cuts_a_plain_answer(engine):
    every_token = list(range(engine.model.get_input_embeddings().num_embeddings))
    engine.model.generation_config.eos_token_id = every_token
    asked = propose_requests(Prompts(), 2, [None, *give_adapters(engine, 1)], GREEDY)
    with unstoppable(engine):
        assert {g.completion_tokens for g in PlainEngine(engine).generate(asked)} == {GREEDY.max_new_tokens}
    assert engine.model.generation_config.eos_token_id == every_token


def test_the_bare_loop_is_the_base_model(engine):
    asked = propose_requests(Prompts(), 3, [None], GREEDY)
    steps = []
    hook = engine.model.register_forward_hook(
        lambda module, args, output: steps.append(output.logits[:, -1].argmax(-1))
    )
    decode_bare(engine, asked)
    hook.remove()
    with unstoppable(engine):
        written = write_together(engine, asked)
    assert torch.stack(steps, dim=1).tolist() == written


def test_requests_differ_where_they_should(engine):
    asked = propose_requests(Prompts(), 3, ["x", "y"], GREEDY)
    assert [request.adapter for request in asked] == ["x"] * 3 + ["y"] * 3
    assert len({request.seed for request in asked}) == 6
    assert len({request.messages for request in asked}) == 6
    judged = rate_requests(Prompts(), engine, 2, 3, [None, None], RatingScale())
    assert {len(set(request.candidates)) for request in judged} == {3}
    prompts = [engine.rating_prompts(request) for request in judged]
    for rows in prompts:
        assert all(rows[0][:PREFIX] == row[:PREFIX] for row in rows)
    assert prompts[0][0][: PREFIX // 2] == prompts[2][0][: PREFIX // 2]  # judges share the task
    assert prompts[0][0][:PREFIX] != prompts[1][0][:PREFIX]
    assert len(set(questions(9))) == 9


def test_adapters_are_made_once_and_speak(engine):
    assert give_adapters(engine, 2) == give_adapters(engine, 2) == ["agent0", "agent1"]
    assert set(engine.adapters) == {"agent0", "agent1"}
    with unstoppable(engine):
        texts = [g.text for g in engine.generate(propose_requests(Prompts(), 1, [None, "agent0", "agent1"], GREEDY))]
    assert engine.stop_ids
    assert len(texts) == 3


def test_loops_are_scaled_to_the_whole_work(engine, monkeypatch):
    for name, value in (("AGENTS", 2), ("TASKS", 3), ("NEW_TOKENS", 2), ("CANDIDATES", 2)):
        monkeypatch.setattr(phases, name, value)
    monkeypatch.setattr("nsed_torch.evaluation.measurement.seconds", lambda work: (work(), 2.0)[1])
    lines = phases.propose_lines(engine, repeats=1, sample=4)
    assert [line.other_values for line in lines] == [(6.0,), (2.0,), (2.0,), (2.0,)]  # 2 of 6 calls were made
    monkeypatch.setattr("nsed_torch.evaluation.speed.requests.PREFIX", 30)
    monkeypatch.setattr(phases, "SCALE", RatingScale())
    lines = phases.rate_lines(engine, repeats=1, sample=3)
    assert [line.other_values for line in lines] == [(6.0,), (4.0,)]  # 2 of 6, 2 of 4
    assert all(0 <= line.facts["most_apart"] < 1e-4 for line in lines)


def test_a_whole_deliberation_says_the_same_both_ways(engine, monkeypatch):
    for name, value in (("TASKS", 3), ("ROUNDS", 2), ("NEW_TOKENS", 3)):
        monkeypatch.setattr(whole, name, value)
    (line,) = whole.whole_lines(engine, repeats=2, sample=2)
    assert line.facts["same_proposals"] == 1.0
    assert 0 < line.facts["outside_models"] < 1
    transcripts = whole.deliberate(engine, [Task("What is 1 plus 1?", "a")])
    assert len(transcripts[0].rounds) == 2
    used = [p.usage for t in transcripts for r in t.rounds for p in r.proposals]
    assert line.facts["tokens"] > sum(usage.prompt_tokens for usage in used)
    assert whole.same_proposals(transcripts, transcripts) == 1.0
    assert 0.5 < whole.outside(1e6, transcripts) <= 1


def test_workflows_say_the_same_all_three_ways(engine, monkeypatch):
    for name, value in (("JOBS", 3), ("NEW_TOKENS", 3)):
        monkeypatch.setattr(conduct, name, value)
    lines = conduct.conduct_lines(engine, repeats=1, sample=2)
    assert [line.facts["same_responses"] for line in lines] == [1.0, 1.0]
    assert len({line.facts["tokens"] for line in lines}) == 1
    assert 0 < lines[0].facts["outside_models"] < 1
    chain, tree = conduct.workflows(2, ["a", "b", "c"])[::-1]
    assert [job.workflow.waves() for job in (chain, tree)] == [((0,), (1,), (2,)), ((0, 1), (2,))]
    first, second = conduct.conduct(
        engine, ["agent0", "agent1", "agent2"], conduct.workflows(2, ["agent0", "agent1", "agent2"])
    )
    assert conduct.same_responses([first, second], [first, first]) < 1
