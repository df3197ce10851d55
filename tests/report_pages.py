"""What tests of pages share: a transcript that has everything, and a reader of HTML."""

import dataclasses
from html.parser import HTMLParser

from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import AgentRecord, Critique, MemorySlot, Proposal, Round, Task, Transcript, Usage

TEAM = ["Ada", "Ben", "Cleo"]
VOID = {"img", "input", "meta"}
PLAIN = str.maketrans({"\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{MULTIPLICATION SIGN}": "*"})
HOSTILE = (
    "</div></script><img src=x onerror=alert(1)><style>*{display:none}</style>"
    "\"'><a href='javascript:alert(2)' onclick=alert(3)>{{ 7 * 7 }}{% raw %} <!-- &amp; &#60;"
)


def first_round() -> Round:
    proposals = [
        Proposal("Ada", "71 is larger: 71 - 17 = 54 > 0.", "stop", Usage(1, 210, 14, 0.00004, 1.2)),
        Proposal(
            "Ben",
            "17, because seven comes last.\n\nOn reflection:\n  1 < 7\n  so no.",
            "length",
            Usage(1, 208, 128, 0.0002, 6.1),
        ),
        Proposal(
            "Cleo",
            "Both have the digits 1 and 7, therefore they are equal.",
            "stop",
            Usage(1, 209, 16, 0.00005, 1.4),
        ),
    ]
    return Round(
        index=1,
        proposers=TEAM,
        voters=TEAM,
        proposals=proposals,
        ratings=[[None, -0.78, -0.33], [0.56, None, None], [0.89, -0.11, None]],
        vote_mask=[[False, True, True], [True, False, False], [True, True, False]],
        ballots=[[0.0, -0.838, -0.545], [1.0, 0.0, 0.0], [0.943, -0.332, 0.0]],
        trust=[1.12, 0.77, 1.11],
        support=[1.817, -1.307, -0.611],
        consensus=[0.882, 0.039, 0.079],
        winner=0,
        all_negative=False,
        conviction=0.486,
        decisiveness=3.735,
        controversy=[0.027, 0.112, 0.0],
        memory=[
            MemorySlot(proposals[0].text, "Ada", 1, 0.882, 1.0, True),
            MemorySlot(proposals[2].text, "Cleo", 1, 0.079, 1.0, True),
            MemorySlot(proposals[1].text, "Ben", 1, 0.039, 1.0, False),
        ],
        critiques=[
            Critique(0, 1, "The last digit does not decide; compare the tens first."),
            Critique(2, 0, "Right, and the subtraction proves it."),
            Critique(2, 1, "Contradicts itself half-way."),
        ],
        notes=["Ben rated Cleo's proposal with a text that holds no number; the rating does not count"],
        usage=Usage(6, 1840, 164, 0.00031, 12.4),
    )


def silent_round(first: Round) -> Round:
    return Round(
        index=2,
        proposers=TEAM,
        voters=TEAM,
        proposals=[Proposal(name, "", "stop") for name in TEAM],
        ratings=[[None] * 3 for _ in TEAM],
        vote_mask=[[False] * 3 for _ in TEAM],
        ballots=[[0.0] * 3 for _ in TEAM],
        trust=[1.0] * 3,
        support=[0.0] * 3,
        consensus=[0.0] * 3,
        winner=None,
        all_negative=False,
        conviction=0.0,
        decisiveness=0.0,
        controversy=[0.0] * 3,
        memory=[
            dataclasses.replace(first.memory[0], retention=0.719, gate=0.816),
            dataclasses.replace(first.memory[1], retention=0.05, gate=0.63, shown=False),
        ],
        notes=["nobody answered: the memory only faded"],
        usage=Usage(3, 900, 0, 0.0, 0.8),
    )


def last_round(first: Round) -> Round:
    proposals = [
        Proposal(
            "Ada",
            "71. Compare the tens: 7 > 1, so 71 > 17 whatever the ones say.",
            "stop",
            Usage(1, 260, 30, 0.0001, 2.2),
        ),
        Proposal("Ben", "It is hard to say which is larger.", "stop", Usage(1, 258, 12, 0.0001, 1.0)),
        Proposal("Cleo", "71, as 71 = 17 + 54.", "stop", Usage(1, 259, 13, 0.0001, 1.1)),
    ]
    return Round(
        index=3,
        proposers=TEAM,
        voters=TEAM,
        proposals=proposals,
        ratings=[[None, -0.9, -0.2], [-0.1, None, -0.3], [-0.2, -1.0, 0.4]],
        vote_mask=[[False, True, True], [True, False, True], [True, True, False]],
        ballots=[[0.0, -0.905, -0.426], [-0.5, 0.0, -0.866], [-0.408, -0.913, 0.0]],
        trust=[1.2, 0.6, 1.2],
        support=[-0.79, -2.18, -1.03],
        consensus=[0.51, 0.13, 0.36],
        winner=0,
        all_negative=True,
        conviction=-0.198,
        decisiveness=4.0,
        controversy=[0.003, 0.003, 0.003],
        memory=[
            MemorySlot(first.memory[0].text, "Ada", 1, 0.602, 0.837, True),
            MemorySlot(proposals[0].text, "Ada", 3, 0.51, 1.0, True),
            MemorySlot("71, as 71 = …", "Cleo", 3, 0.36, 1.0, False),
        ],
        usage=Usage(6, 2210, 55, 0.0003, 8.9),
    )


def example() -> Transcript:
    """Three agents, three rounds: masks, negative ratings, notes, critiques, and a round without answers."""
    first = first_round()
    personas = ["A careful mathematician who checks each step.", "A quick thinker.", ""]
    agents = [
        AgentRecord(
            name,
            "smollm2-135m" if name != "Cleo" else "gemma-3-270m",
            persona,
            {
                "quantization": "nf4",
                "dtype": "float32",
                "revision": "7e27bd9f95328f0f3b08261d1252705110c806f8",
                "adapter": None,
            },
            {"max_new_tokens": 128, "temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.1},
            0.1,
            0.4,
        )
        for name, persona in zip(TEAM, personas, strict=True)
    ]
    rounds = [first, silent_round(first), last_round(first)]
    return Transcript(
        task=Task("Which is larger, 17 or 71?", "digits-17", "71"),
        agents=agents,
        rounds=rounds,
        answer=rounds[2].proposals[0].text,
        stop_reason="rounds",
        usage=Usage.sum(turn.usage for turn in rounds),
        seed=0,
        settings={
            "vote": {"activation": "quadratic", "beta": 1.0, "kappa": 0.0},
            "gate": {"mode": "learned", "slots": 3, "bias": 1.5},
            "halting": {"rule": "fixed", "rounds": 3},
            "templates": {"propose": "5f1c9a", "rate": "b83e02"},
            "budgets": {},
            "nsed_torch": "0.1.0",
        },
    )


def answered(question: str, text: str) -> Transcript:
    """The example with one text in every place that takes a model's or a user's words."""
    base = example()
    first = base.rounds[0]
    turn = dataclasses.replace(
        first,
        proposals=[dataclasses.replace(first.proposals[0], text=text), *first.proposals[1:]],
        memory=[
            dataclasses.replace(first.memory[0], text=text),
            dataclasses.replace(first.memory[1], text="w" + text),
        ],
        critiques=[Critique(1, 0, text)],
        notes=[text],
    )
    agents = [dataclasses.replace(base.agents[0], persona=text, backbone=text), *base.agents[1:]]
    return dataclasses.replace(
        base,
        task=Task(question, "x" + text, text),
        agents=agents,
        rounds=[turn],
        answer=text,
        settings={text: text, "list": [text]},
        stop_reason=text,
    )


def trace(name: str, first: bool, last: bool, transcript: Transcript | None = None) -> Trace:
    """The example on a task of that name; whether Ada, who wins rounds 1 and 3, was right in them."""
    transcript = transcript or example()
    grades = [[first, False, False], [False] * 3, [last, False, last]]
    answers: list[list[str | None]] = [
        ["71" if first else "18", "17", None],
        [None] * 3,
        ["71" if last else "18", None, "71.0" if last else "18"],
    ]
    kept = [turn.index - 1 for turn in transcript.rounds]
    return Trace(
        dataclasses.replace(transcript, task=dataclasses.replace(transcript.task, id=name)),
        [grades[i] for i in kept],
        [answers[i] for i in kept],
    )


def outcome(method: str, task: str, verdict: Verdict, text: str = "", answer: str | None = None) -> Outcome:
    """One line of an evaluation, of 150 tokens."""
    return Outcome(method, task, task, "sums", answer, text, verdict, Usage(1, 100, 50, 0.001, 1.0), "")


class Page(HTMLParser):
    """Collects what a browser would see: elements in order, and the text inside each."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[int] = []
        self.texts: dict[int, str] = {}
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {[self.elements[i] for i in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_data(" ")
        self.elements.append((tag, dict(attrs)))
        self.texts[len(self.elements) - 1] = ""
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open.pop()][0] == tag
        self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for position in self.open:
            self.texts[position] += data

    def find(self, tag: str, **attributes: str) -> list[str]:
        """Texts of the elements of that tag that have these attribute values; white space as it stands."""
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        return [
            self.texts[i]
            for i, (name, attrs) in enumerate(self.elements)
            if name == tag and all(attrs.get(key) == value for key, value in wanted.items())
        ]

    def words(self, tag: str, **attributes: str) -> list[str]:
        """The same with single spaces, a space at every tag, and plain signs."""
        return [" ".join(text.translate(PLAIN).split()) for text in self.find(tag, **attributes)]
