"""What the table of servers counts."""

import io
from types import SimpleNamespace

import pytest

from bench import real_servers
from nsed_torch.engines.weights import Weights


def test_tokens_of_vllm_are_those_that_no_kept_prefix_spares():
    out = SimpleNamespace(prompt_token_ids=[1] * 9, num_cached_tokens=4, outputs=[SimpleNamespace(token_ids=[5, 6])])
    model = SimpleNamespace(generate=lambda prompts, use_tqdm: [out] * len(prompts))
    count = real_servers.seen_by_vllm(SimpleNamespace(_model=model))
    assert model.generate(["a", "b"], use_tqdm=False) == [out, out]
    # The last token that is written goes through no layer.
    assert count() == 2 * (9 - 4 + 1)


def test_a_servers_counters_are_summed(monkeypatch):
    class Reply:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def read(self):
            names = {"prompt_tokens": 30, "prefix_cache_hits": 8, "generation_tokens": 7, "request_success": 2}
            lines = [f'vllm:{name}_total{{engine="{i}"}} {n}.0' for name, n in names.items() for i in (0, 1)]
            return "\n".join([*lines, "vllm:prompt_tokens_created 5", "# end"]).encode()

    asked = []
    monkeypatch.setattr(real_servers.urllib.request, "urlopen", lambda url, timeout: asked.append(url) or Reply())
    assert real_servers.computed_by_vllm("http://127.0.0.1:1/v1") == 2 * (30 - 8 + 7 - 2)
    assert asked == ["http://127.0.0.1:1/metrics"]


def test_llama_cpps_counters_have_no_labels(monkeypatch):
    text = b"llamacpp:prompt_tokens_total 30\nllamacpp:tokens_predicted_total 7\nllamacpp:prompt_tokens_seconds 9\n"
    monkeypatch.setattr(real_servers.urllib.request, "urlopen", lambda url, timeout: io.BytesIO(text))
    assert real_servers.computed_by_llama("http://127.0.0.1:1") == 37


def test_packing_computes_fewer_tokens_than_a_call_after_the_other(folder):
    pytest.importorskip("psutil")
    weights = Weights("tiny", path=str(folder))
    here, plain = (dict(real_servers.hour(way, weights, 1, 1)) for way in ("here", "plain"))
    assert 0 < here["tokens a deliberation"] < plain["tokens a deliberation"]
    assert min(*here.values(), *plain.values()) > 0
