"""Which requests are one call to the call log, and which are two."""

import importlib.metadata
from dataclasses import replace

from recording_team import weigh

from nsed_torch.core.engine import Message, RatingScale
from nsed_torch.records.call_log import call_key


def test_equal_requests_are_asked_once(ensemble, engines, ask):
    got = ensemble.generate([ask("q"), ask("p"), ask("q"), ask("q")])
    assert engines["one"].batches == [["q", "p"]]
    assert got[0] == got[2] == got[3] != got[1]


def test_an_adapter_is_fingerprinted_once_a_call_and_anew_in_the_next(ensemble, engines, ask, monkeypatch):
    versions, asked = iter("123"), []

    def identity(adapter):
        asked.append(adapter)
        return {"adapter": next(versions)}

    monkeypatch.setattr(engines["one"], "identity", identity)
    requests = [replace(ask(text), adapter="poet") for text in "qpr"]
    for _ in range(2):
        ensemble.generate(requests)
    assert asked == ["poet"] * 2
    assert [text for batch in engines["one"].batches for text in batch] == [*"qpr"] * 2


def test_writing_and_rating_the_same_chat_are_two_calls(ensemble, engines, ask, judge):
    ensemble.generate([ask("Rate.", system="Be fair.")])
    ensemble.rate([judge([])])
    assert engines["one"].batches == [["Rate."], ["Rate."]]


def changed(request):
    """The request with each of its fields changed in turn."""
    system, user = request.messages
    yield from (
        replace(request, seed=1),
        replace(request, adapter="poet"),
        replace(request, template="abcd"),
        replace(request, agent="b"),
        replace(request, agent="c"),
        replace(request, messages=(system, Message("user", user.content + " "))),
        replace(request, messages=(Message("user", system.content), user)),
        replace(request, messages=(user,)),
    )


def calls(ensemble):
    return len(ensemble.call_log)


def test_any_change_of_a_request_to_write_is_another_call(ensemble, ask):
    base = ask("q", system="s")
    variants = list(changed(base))
    for field, value in (("max_new_tokens", 13), ("temperature", 0.8), ("top_p", 0.5), ("repetition_penalty", 1.1)):
        variants.append(replace(base, decoding=replace(base.decoding, **{field: value})))
    ensemble.generate([base, *variants])
    assert calls(ensemble) == 1 + len(variants)


def test_any_change_of_a_request_to_rate_is_another_call(ensemble, judge):
    base = judge(["x", "y"])
    variants = [*changed(base), replace(base, candidates=("y", "x")), replace(base, candidates=("x",))]
    variants.append(replace(base, scale=RatingScale(("N", "Y"), (-1, 1))))
    variants.append(replace(base, scale=RatingScale(("N", "Y"), (-1, 0.5))))
    ensemble.rate([base, *variants])
    assert calls(ensemble) == 1 + len(variants)


def test_any_change_of_a_request_to_measure_is_another_call(ensemble):
    base = weigh("x", "y")
    system, user = base.messages
    variants = [replace(base, **{name: value}) for name, value in (("template", "abcd"), ("agent", "b"))]
    variants += [replace(base, adapter="poet"), replace(base, texts=("y", "x")), replace(base, texts=("x",))]
    variants += [replace(base, messages=(user,)), replace(base, messages=(system, Message("user", "Rate. ")))]
    ensemble.measure([base, *variants])
    assert calls(ensemble) == 1 + len(variants)


def test_calls_have_the_keys_that_logs_of_other_versions_know(ensemble, ask, judge):
    """Kind, package version, identity and the request's own fields, by name, and nothing else."""
    version = importlib.metadata.version("nsed_torch")
    identity = {"name": "one", "adapter": None, "revision": 1}
    chat = [["system", "Be fair."], ["user", "Rate."]]
    rest = {"agent": "a", "messages": chat, "adapter": None, "template": ""}
    decoding = {"max_new_tokens": 12, "temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.0}
    scale = {"labels": list("0123456789"), "values": list(RatingScale().values)}
    ensemble.generate([ask("Rate.", system="Be fair.")])
    ensemble.rate([judge(["x"])])
    ensemble.measure([weigh("x")])
    keys = [
        call_key(kind=kind, version=version, identity=identity, request={**rest, **fields})
        for kind, fields in (
            ("generate", {"decoding": decoding, "seed": 0}),
            ("rate", {"candidates": ["x"], "scale": scale, "seed": 0}),
            ("likelihood", {"texts": ["x"]}),
        )
    ]
    assert list(ensemble.call_log.get(keys)) == keys
    assert calls(ensemble) == 3


def test_a_change_of_the_model_or_the_package_is_another_call(ensemble, engines, ask, monkeypatch):
    ensemble.generate([ask("q")])
    engines["one"].revision = 2
    ensemble.generate([ask("q")])
    assert calls(ensemble) == 2
    monkeypatch.setattr("importlib.metadata.version", lambda package: "99")
    ensemble.generate([ask("q")])
    assert calls(ensemble) == 3
