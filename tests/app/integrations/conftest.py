"""A tiny team, and questions in files, for the tools that researchers have."""

import json

import pytest
from tiny_models import save_tiny, tiny_tokenizer

QUESTIONS = [{"id": f"q{i}", "question": f"How much is {i} + {i}?", "target": str(2 * i)} for i in range(4)]


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory):
    """A folder with a random Llama of two layers that knows ASCII; Yes and No are one token each."""
    words = [*map(chr, range(33, 127)), "Ġ", "Ċ", "Ye", "Yes", "No"]  # Ġ and Ċ: how byte level writes blank and break
    merges = [("Y", "e"), ("Ye", "s"), ("N", "o")]
    tokenizer = tiny_tokenizer(words=words, merges=merges, bos_token="<|im_start|>")
    bos = tokenizer.bos_token_id
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=8192, bos_token_id=bos)


@pytest.fixture
def settings(tiny_weights):
    """Three voices of it that draw, for two rounds."""
    return {
        "ensemble": "demo",
        "encoder": "hashed",
        "rating": "verdict",
        "rounds": 2,
        "prompts.style": "short",
        "ensemble.engines.smollm2.weights.path": str(tiny_weights),
        "ensemble.engines.smollm2.quantization": "none",
        **{f"ensemble.agents.{name}.decoding.max_new_tokens": 8 for name in ("solver", "skeptic", "explainer")},
    }


@pytest.fixture
def questions_file(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in QUESTIONS))
    return path


@pytest.fixture
def evaluated(tmp_path):
    """What `nsed evaluate` has to say to the same questions: settings -> transcripts by id.

    `named` says under which id each of them is asked; their own, unless it is given.
    """
    from nsed_torch.app.cli import main
    from nsed_torch.records.trace import read_traces

    def run(settings, named=lambda record: record["id"]):
        file = tmp_path / "native.jsonl"
        file.write_text("".join(json.dumps({**record, "id": named(record)}) + "\n" for record in QUESTIONS))
        words = [f"{key}={value}" for key, value in settings.items()]
        words += ["tasks=file", f"tasks.questions={file}"]
        words += ["methods=[deliberation]", "protocol.pooled=false", f"output_dir={tmp_path / 'native'}"]
        assert main(["evaluate", *words]) == 0
        return {trace.transcript.task.id: trace.transcript for trace in read_traces(tmp_path / "native")}

    return run
