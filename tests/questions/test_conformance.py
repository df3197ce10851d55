"""What models write, and what a person reads out of it: numbers, formulas, letters, texts, lists, programs.

A case is a line: the text, two arrows, what is wanted, where `-` is that no answer can be read. In texts a backslash
and n are a line's end. Wordings are our own.
"""

# ruff: noqa: RUF001, PLE2515 - signs that look like others are what is tested

import pytest

from nsed_torch.questions.answers.kinds import read
from nsed_torch.questions.programs import ProgramGrader
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

RULE = Equality(math_verify=False)
FORMULAS = Equality()
CITIES = ("Lima", "Quito", "Bogota", "La Paz")


def lines(block):
    cases = [line.partition(" >> ") for line in block.strip("\n").splitlines()]
    return [(one.replace("\\\\n", "\0").replace("\\n", "\n").replace("\0", "\\n"), wanted) for one, _, wanted in cases]


NUMBERS = lines(r"""
17 >> 17
17. >> 17
**17** >> 17
It is 17. >> 17
The answer is 17. >> 17
The answer is 17 >> 17
the answer is: 17 >> 17
The answer is **17**. >> 17
The answer is __17__ >> 17
The answer is `17`. >> 17
The answer is "17". >> 17
The answer is $17$. >> 17
The answer is \(17\). >> 17
The answer is 17 (as computed in step 3). >> 17
The answer is 17, not 12. >> 17
The answer is 17, which is prime, unlike 21. >> 17
The answer is 17 because 20 - 3 = 17, of 40. >> 17
The answer is 17 apples. >> 17
The answer is 17 apples out of 40. >> 17
The answer is that Nora keeps 17 marbles. >> 17
The answer is exactly 17 >> 17
The answer is approximately 17.3 litres >> 17.3
The answer is 9 + 8 = 17. >> 17
The answer is x = 17. >> 17
The answer is simply 17! >> 17
The answer is not 12. It is 17. >> 17
The correct answer is not 12. It's 17, I checked. >> 17
The answer isn't clear at first. In the end there are 17 >> 17
The answer to the question is 17 >> 17
The answer to your question about the 4 boxes is 17 >> 17
The answer, after 3 steps, is 17. >> 17
The answer should be 17 >> 17
The answer must be 17 then. >> 17
The answer would be 17 coins >> 17
The answer comes to 17 in total >> 17
The answer equals 17 >> 17
The answer = 17 >> 17
Answer: 17 >> 17
Answer:17 >> 17
ANSWER: 17 >> 17
**Answer:** 17 >> 17
**Answer**: 17 >> 17
*Answer: 17* >> 17
Answer - 17 >> 17
Answer → 17 >> 17
Answer => 17 >> 17
Final answer: 17 >> 17
**Final Answer:** $17$ >> 17
Final answer (in euros): 17 >> 17
Final Answer\n17 >> 17
## Answer\n\n17 >> 17
### Final Answer\n**17** >> 17
Answer:\n\n17 >> 17
The answer is:\n17 >> 17
Answers: 17 >> 17
My answer is 17, I think. >> 17
So my final answer is 17 euros. >> 17
> Answer: 17 >> 17
- Answer: 17 >> 17
1. 5 + 4 = 9\n2. 9 + 8 = 17\nAnswer: 17 >> 17
Answer: 12\nWait, I forgot one.\nAnswer: 17 >> 17
Answer: ~~12~~ 17 >> 17
#### 17 >> 17
9 + 8 = 17\n#### 17 >> 17
#### 17 marbles >> 17
\boxed{17} >> 17
So we get \boxed{17}. >> 17
$\boxed{17}$ >> 17
$$\boxed{17}$$ of 40 in all >> 17
\boxed{12}? No: \boxed{17} >> 17
\boxed{\text{17}} >> 17
\boxed{17\text{ cm}} >> 17
\boxed{17 \text{ apples}} and 3 pears stay >> 17
\boxed{x = 17} >> 17
\boxed{\boxed{17}} >> 17
\fbox{17} >> 17
\boxed{17} and an unfinished \boxed{12 >> 17
Answer: 12, or rather \boxed{17} >> 17
{"answer": 17} >> 17
{"answer": 17, "steps": 3} >> 17
{"steps": 3, "answer": "17"} >> 17
{"answer": "17", "confidence": 0.9} >> 17
{"reasoning": "4 of \\boxed{21} go", "answer": "17"} >> 17
{'answer': '17', 'n': 2} >> 17
{"final_answer": 17.0, "unit": "cm", "n": 4} >> 17
{"Answer": 17} >> 17
```json\n{"thought": "9 and 8", "answer": 17}\n``` >> 17
```json\n{\n  "answer": "17",\n  "steps": 12\n}\n```\nThat took 12 steps. >> 17
{"reasoning": "half of 34", "answer": 17 >> 17
<answer>17</answer> >> 17
<answer>17</answer> (in 3 steps) >> 17
<answer> 17 </answer>\nChecked 2 times. >> 17
<reasoning>9 + 8</reasoning>\n<answer>\n17\n</answer> >> 17
<ANSWER>17</ANSWER> >> 17
<answer>17 >> 17
<final_answer>17</final_answer> after 4 tries >> 17
<answer>12</answer> Sorry. <answer>17</answer> >> 17
[[17]] >> 17
The result is [[17]] after 3 rounds >> 17
final_answer(17) >> 17
The total is 3 times 5, plus 2: 17 >> 17
3 * 5 + 2 = 17 >> 17
There are 40 in all and 23 go, so 17 stay >> 17
1,017 >> 1017
The answer is 1,017. >> 1017
The answer is $1,017.50. >> 1017.5
The answer is \$1,017 >> 1017
The answer is €17 >> 17
The answer is 17 € >> 17
The answer is 17%. >> 17
The answer is 17 percent of 200 >> 17
The answer is 17\%. >> 17
The answer is -17. >> -17
The answer is −17 >> -17
The answer is - 17 >> -17
The answer is +17 >> 17
from 5 down to -17 >> -17
The answer is 0.17. >> 0.17
The answer is .17 >> 0.17
The answer is 17.0 >> 17
The answer is 1/17. >> 1/17
The answer is 1 1/2. >> 1.5
The answer is \frac{1}{17}. >> 1/17
The answer is $\dfrac{17}{2}$. >> 8.5
The answer is 1.7e3 >> 1700
The answer is 1.7 \times 10^3 >> 1700
The answer is 1.7×10³. >> 1700
The answer is 1.7 * 10^{-3} >> 0.0017
The answer is 2.5 million people >> 2500000
The answer is seventeen. >> 17
The answer is twenty-one >> 21
The answer is １７. >> 17
The answer is ١٧ >> 17
The answer is 1​7. >> 17
The answer is 17 🎉 >> 17
🎯 Answer: 17 ✅ >> 17
✅ 17 >> 17
The answer is 1️⃣7️⃣ >> 17
The answer is <b>17</b>. >> 17
Die Antwort ist 17. >> 17
Die Antwort lautet: **17** Euro, nach 3 Schritten. >> 17
Antwort: 17 >> 17
La réponse est 17 (voir étape 3). >> 17
Réponse : 17 >> 17
Réponse finale : 17 pommes >> 17
La respuesta es 17. Son 3 pasos. >> 17
Respuesta final: 17 >> 17
A resposta é 17, em 3 passos >> 17
La risposta è 17. >> 17
Het antwoord is 17. >> 17
Odpowiedź: 17 >> 17
Svaret är 17. >> 17
Svar: 17 >> 17
Vastaus on 17 >> 17
Cevap: 17 >> 17
Jawaban: 17 >> 17
Đáp án: 17 >> 17
Ответ: 17 >> 17
Ответ — 17 яблок. >> 17
Відповідь: 17 >> 17
答案是17。 >> 17
答案：17 >> 17
最终答案是 17，共 3 步。 >> 17
答えは17です。 >> 17
正解：17 >> 17
정답은 17입니다. >> 17
답: 17 >> 17
الإجابة هي 17 >> 17
उत्तर: 17 >> 17
<think>Perhaps 12, \boxed{12}.</think>It is 17. >> 17
<think>12? 13?</think>\n\n\boxed{17} >> 17
maybe 12, Answer: 12</think>The answer is 17 >> 17
<think>Let me try \boxed{12} >> -
<think>The answer is 12 >> -
<thinking>12</thinking>17 >> 17
The answer is 17.\n\nQuestion: How many legs have 3 cats?\nThe answer is 12. >> 17
#### 17\n\nQ: And 5 + 7?\n#### 12 >> 17
\boxed{17}\n\nProblem: What is 6 + 6?\n\boxed{12} >> 17
Answer: 17\nUser: thanks, and 3 * 4?\nAnswer: 12 >> 17
Answer: 17\n\nHuman: 3 * 4?\n\nAssistant: 12 >> 17
The answer is 17.\n\n### Question\n3 * 4?\nThe answer is 12. >> 17
The answer is 17.<|im_end|><|im_start|>user 3 * 4? Answer: 12 >> 17
Answer: 17\n\nQuestion 2: 3 * 4?\nAnswer: 12 >> 17
Question: 9 + 8?\nAnswer: 17 >> 17
I'm sorry, but I can't help with that. >> -
I do not know. >> -
I cannot determine this. >> -
 >> -
... >> -
Answer: >> -
There is no way to tell. >> -
Let me think about the marbles. >> -
""")

LETTERS = lines(r"""
B >> B
b >> B
(B) >> B
B. >> B
B) >> B
[B] >> B
**B** >> B
`B` >> B
B: Quito >> B
B) Quito >> B
(B) Quito >> B
B - Quito >> B
B because it lies high >> B
The answer is B. >> B
The answer is (B). >> B
The answer is **B**. >> B
The answer is B) Quito. >> B
The answer is (B) because of the mountains. >> B
The answer is option B. >> B
The answer is: (b) >> B
The answer is `B`. >> B
The answer is "B". >> B
The answer is $B$. >> B
The answer is $\boxed{B}$ >> B
The answer is most likely B. >> B
The answer would be B >> B
The answer should be (B), not (A). >> B
The answer is not A. It is B. >> B
The answer to this is B >> B
The best answer is B, though A comes close. >> B
The correct option is B. >> B
The correct choice is (B). >> B
Correct answer: B >> B
Answer: B >> B
Answer:B >> B
Answer: (B) >> B
**Answer: B** >> B
**Answer:** B) Quito >> B
Answer: option B >> B
Answer: \text{B} >> B
Option: B >> B
Choice: B >> B
Answer\nB >> B
## Final Answer\n\n**B** >> B
Answer B >> B
Final answer: B. Quito >> B
I choose B. >> B
I would choose option B. >> B
I pick (B). >> B
I'd go with B >> B
I select B, Quito. >> B
I vote for B. >> B
I will go with option B because it is high. >> B
So B is the right answer. >> B
B is correct. >> B
Thus, B is the correct option. >> B
Therefore (B) is the best answer. >> B
Option B is correct. >> B
Option (B) is the correct one. >> B
Hence B. >> B
Therefore, B >> B
So it must be B. >> B
A is wrong, because Lima is low.\nB is the right answer. >> B
A) is too low.\nC) is close.\nThe answer is B. >> B
\boxed{B} >> B
\boxed{\text{B}} >> B
\boxed{\textbf{(B)}} >> B
\boxed{(B)\ \text{Quito}} >> B
\boxed{Quito} >> B
\boxed{A}, no, \boxed{B} >> B
[[B]] >> B
My verdict: [[B]] >> B
{"answer": "B"} >> B
{"answer": "B", "why": "A is low"} >> B
{"answer": "(B)"} >> B
{"answer": "B) Quito"} >> B
{"choice": "B"} >> B
{'answer': 'B'} >> B
```json\n{"reasoning": "A? no", "answer": "B"}\n``` >> B
<answer>B</answer> >> B
<answer>(B)</answer> >> B
<answer>B. Quito</answer> >> B
<answer>\nB\n</answer> >> B
<reasoning>A is low</reasoning><answer>B</answer> >> B
Let me see.\n\nB >> B
Let me see.\n\n(B)\n >> B
Quito >> B
Quito. >> B
**Quito** >> B
The answer is Quito. >> B
The highest of them:\nQuito >> B
Die Antwort ist B. >> B
Antwort: B >> B
La réponse est B. >> B
La respuesta es B. >> B
La risposta è (B). >> B
A resposta correta é B. >> B
Ответ: B >> B
答案是B。 >> B
答案：B >> B
选B >> B
答えはBです。 >> B
정답은 B입니다. >> B
【B】 >> B
（Ｂ） >> B
Answer: Ｂ >> B
✅ B >> B
👉 Answer: B 🎉 >> B
<think>A? The answer is A.</think>The answer is B. >> B
Surely A.</think>B >> B
<think>The answer is A >> -
The answer is (B).\n\nQuestion: Which is lowest?\nThe answer is (A). >> B
Answer: B\n\nQ: Another?\nAnswer: C >> B
The answer is B.\nQuestion: x\nA) 1\nB) 2\nAnswer: D >> B
A city in the mountains >> -
A long story about rivers. >> -
The answer is a city. >> -
The answer is A or B. >> -
Answer: A, B >> -
Answer: A and B >> -
Answer: B/C >> -
Answer: F >> -
\boxed{G} >> -
The answer is not A. >> -
Both Lima and Quito are fine cities. >> -
I do not know. >> -
I'm sorry, I can't answer that. >> -
If B is correct, then so is A. >> -
B-trees are trees. >> -
C++ is what I would use. >> -
 >> -
A) Lima\nB) Quito\nC) Bogota\nD) La Paz >> -
I think Vitamin C helps. >> -
""")

TEXTS = lines(r"""
Paris >> paris
paris. >> paris
**Paris** >> paris
"Paris" >> paris
The answer is Paris. >> paris
Answer: Paris >> paris
Answer: Paris, the capital of France >> paris
Answer: Paris (France) >> paris
The capital of France is Paris. >> paris
It lies on the Seine.\nParis >> paris
\boxed{Paris} >> paris
\boxed{\text{Paris}} >> paris
<answer>Paris</answer> >> paris
{"answer": "Paris", "country": "France"} >> paris
[[Paris]] >> paris
Die Antwort ist Paris. >> paris
La réponse est Paris. >> paris
Ответ: Paris >> paris
<think>London?</think>Paris >> paris
London?</think>\nThe answer is Paris. >> paris
<think>Paris >> -
Answer: Paris\n\nQuestion: And of Italy?\nAnswer: Rome >> paris
Answer: ✨ Paris ✨ >> paris
The Eiffel Tower >> eiffel tower
Answer: an owl >> owl
mother >> Mother
It is his mother. >> his mother
The riddle's answer is: a shadow >> shadow
yes >> Yes
Yes. >> yes
Answer: No. >> no
The answer is J. K. Rowling. >> J. K. Rowling
Answer: St. John's >> St John's
The answer is blue because the sky is clear. >> blue
The answer is not red. It is blue. >> blue
I'm sorry, but I can't help with that. >> -
I don't know. >> -
As an AI, I have no opinion. >> -
Answer: unknown >> -
 >> -
""")

LISTS = lines(r"""
star, moon, sun >> star, moon, sun
star, moon, and sun >> star, moon, sun
Star, Moon and Sun. >> star, moon, sun
The order is: star, moon, sun. >> star, moon, sun
The answer is star, moon, sun. >> star, moon, sun
Answer: star, moon, sun >> star, moon, sun
<answer>star, moon, sun</answer> >> star, moon, sun
\boxed{\text{star, moon, sun}} >> star, moon, sun
{"answer": "star, moon, sun"} >> star, moon, sun
{"answer": ["star", "moon", "sun"]} >> star, moon, sun
["star", "moon", "sun"] >> star, moon, sun
**star, moon, sun** >> star, moon, sun
19, 46, and 82 >> 19, 46, 82
The sorted numbers are 19, 46 and 82. >> 19, 46, 82
I cannot say. >> -
""")

FORMULAS_READ = lines(r"""
$2\sqrt{3}$ >> 2\sqrt{3}
The answer is $2\sqrt{3}$. >> 2\sqrt{3}
The answer is \(2\sqrt{3}\), as we saw. >> 2\sqrt{3}
\boxed{2\sqrt{3}} >> 2\sqrt{3}
$\boxed{\dfrac{\pi}{2}}$ >> \pi/2
So \boxed{x^2 + 1}. >> x^2+1
Answer: x^2 + 1 >> x^2+1
{"answer": "\frac{\pi}{2}"} >> \pi/2
{"answer": "\\frac{\\pi}{2}"} >> \pi/2
<answer>x^2+1</answer> >> x^2+1
#### 2x + 1 >> 2x+1
We find\n$$y = 2x + 1$$ >> y = 2x+1
x is \boxed{3} or \boxed{5} >> 3, 5
x is \boxed{3}, \boxed{5} >> 3, 5
<think>\boxed{x}</think>\boxed{x+1} >> x+1
<think>\boxed{x} >> -
\boxed{(1, 2)} >> (1,2)
\boxed{\{1, 2\}} >> \{1,2\}
\boxed{[0, \infty)} >> [0,\infty)
I am not sure. >> -
""")


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        (kind, *case)
        for kind, cases in {
            "number": NUMBERS, "letter": LETTERS, "text": TEXTS, "list": LISTS, "formula": FORMULAS_READ,
        }.items()
        for case in cases
    ],
)  # fmt: skip
def test_what_a_text_answers(kind, text, wanted):
    answer = read(text, kind, CITIES if kind == "letter" else ()).answer
    if wanted == "-":
        assert answer is None
    else:
        assert answer is not None
        assert RULE.equal(answer, wanted) or FORMULAS.equal(answer, wanted)


EQUAL = lines(r"""
17 >> 17.0
17 >> +17
1,017 >> 1017
0.5 >> 1/2
.5 >> 0.50
1/2 >> \frac{1}{2}
\frac12 >> \dfrac{1}{2}
1/2 >> 2/4
1 1/2 >> 3/2
-3/4 >> -\frac{3}{4}
17% >> 17\%
17 % >> 17
$17 >> 17 dollars
17 cm >> 17\text{ cm}
17 cm >> 17 centimeters
5\ \text{cm} >> 5 cm
5\,\mathrm{kg} >> 5 kg
17 apples >> 17
90^\circ >> 90°
6.02e23 >> 6.02\times 10^{23}
6.02 \cdot 10^{23} >> 6.02×10²³
1e-12 >> 10^{-12}
2e-10 >> 2 \times 10^{-10}
2.5 million >> 2500000
seventeen >> 17
one hundred and five >> 105
x = 17 >> 17
１７ >> 17
2\sqrt{3} >> \sqrt{12}
\frac{1}{\sqrt{3}} >> \frac{\sqrt{3}}{3}
\pi/2 >> \frac{\pi}{2}
0.5\pi >> \frac{\pi}{2}
2^{10} >> 1024
(x+1)^2 >> x^2+2x+1
2x+1 >> 1+2x
x(x+1) >> x^2+x
y = 2x+1 >> y = 1+2x
(1,2) >> (1, 2)
\left(1,2\right) >> (1,2)
\{1,2\} >> \{2,1\}
{1, 2, 3} >> \{3, 2, 1\}
[0,\infty) >> [0, \infty)
x > 3 >> (3,\infty)
1 < x \leq 2 >> (1,2]
x\in[1,2) >> [1,2)
a=1 or a=-2 >> a=-2 or a=1
x=3, y=4 >> y=4, x=3
\begin{pmatrix}1&2\\3&4\end{pmatrix} >> \begin{bmatrix}1&2\\3&4\end{bmatrix}
19, 46, and 82 >> 19, 46, 82
star, moon, and sun >> star, moon, sun
["star", "moon"] >> star, moon
The Eiffel Tower >> eiffel tower
an owl >> Owl
St. John's >> St John’s
well-known >> well known
\text{Paris} >> Paris
"yes" >> Yes.
\infty >> ∞
3 \pm 2 >> 3±2
""")

DIFFERENT = lines(r"""
2^{-99} >> 2^{-98}
1e-12 >> 2e-12
10^{-10} >> 10^{-11}
3\times 10^{-15} >> 4\times 10^{-15}
e^{-50} >> e^{-51}
1e-30 >> 0
10^{30}+1 >> 10^{30}
10^{40} >> 10^{41}
1000000007 >> 1000000008
0.333 >> 1/3
3.14159 >> \pi
0.1 >> 0.10001
17 >> -17
17 >> 71
1,7 >> 17
1/2 >> 2/1
1 1/2 >> 11/2
50% >> 0.5
5 km >> 5 m
5 kg >> 5 g
$5 >> 5 euros
3 hours >> 3 minutes
90^\circ >> 90 radians
10 cm >> 10 inches
5\text{ m} >> 5\text{ cm}
(1,2) >> (2,1)
(1,2) >> [1,2]
(1,2] >> [1,2)
[1,2] >> \{1,2\}
\{1,2\} >> (1,2)
{1,2} >> (1,2)
\{1,2\} >> \{1,3\}
\{1,2\} >> \{1,2,3\}
(1,2,3) >> (1,3,2)
x > 3 >> x \geq 3
x > 3 >> x < 3
x > 3 >> y > 3
[0,1) >> [0,1]
x = 3 >> x = -3
x=1, y=2 >> x=2, y=1
x^2 >> x^3
x^2+1 >> x^2-1
x >> y
2x >> x/2
\sqrt{2} >> \sqrt{3}
\sqrt{2} >> 1.414
\sin x >> \cos x
\frac{a}{b} >> \frac{b}{a}
\begin{pmatrix}1&2\\3&4\end{pmatrix} >> \begin{pmatrix}1&3\\2&4\end{pmatrix}
[[1,2],[3,4]] >> [[1,2],[4,3]]
star, moon, sun >> sun, moon, star
star, moon >> star, moon, sun
19, 46, 82 >> 19, 46, 28
3:4 >> 4:3
yes >> no
true >> false
Paris >> not Paris
Paris >> Paris Hilton
vitamin A >> vitamin
vitamin A >> vitamin C
C++ >> C
C# >> C
re-sign >> resign
hot dog >> dog hot
one >> two
twenty one >> twenty-two
three twenty >> 23
17 >> seventy
increase >> decrease
""")


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_what_is_the_same(one, other):
    assert FORMULAS.equal(one, other)
    assert FORMULAS.equal(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_is_not_the_same(one, other):
    assert not FORMULAS.equal(one, other)
    assert not FORMULAS.equal(other, one)


PROGRAM = "x = int(input())\nprint(x + 1)"
FENCED = [
    f"```python\n{PROGRAM}\n```",
    f"```python\n{PROGRAM}\n```".replace("\n", "\r\n"),
    f"````python\n{PROGRAM}\n````",
    f"~~~python\n{PROGRAM}\n~~~",
    f"```py3\n{PROGRAM}\n```",
    f"```ipython\n{PROGRAM}\n```",
    f"``` python\n{PROGRAM}\n```",
    f"```Python 3\n{PROGRAM}\n```",
    "1. Here:\n   ```python\n   x = int(input())\n   print(x + 1)\n   ```",
    f"```python\n{PROGRAM}",
    f"```\n{PROGRAM}\n```",
    f"```\n{PROGRAM}\n```\nSample input:\n```\n3 4\n```",
    f"```python\n{PROGRAM}\n```\nOutput:\n```\n8\n```",
    f"```python\n{PROGRAM}\n```\nA run:\n```python\n>>> f(3)\n4\n```",
    f"```python\n{PROGRAM}\n```\nRun it:\n```bash\npython a.py\n```",
    f"<think>\n```python\nprint(0)\n```\n</think>\n```python\n{PROGRAM}\n```",
    PROGRAM,
]


@pytest.mark.parametrize("text", FENCED)
def test_a_program_is_found_in_its_fences(text):
    code = ProgramGrader({}).extract(Task("?", "t"), text)
    assert code is not None
    assert code.strip() == PROGRAM


@pytest.mark.parametrize("tail", ["print(f(3))", ">>> f(3)\n4", "assert f(3) == 4", "y = f(3)\nprint(y)"])
def test_an_example_of_use_is_not_the_program(tail):
    text = f"```python\ndef f(x):\n    return x + 1\n```\nFor example:\n```python\n{tail}\n```"
    assert "def f" in ProgramGrader({}).extract(Task("?", "t"), text)


def test_the_one_line_block():
    assert ProgramGrader({}).extract(Task("?", "t"), "Use ```python print(3)```.") == "print(3)"


@pytest.mark.parametrize("text", ["<think>\n```python\nprint(0)\n```", "```java\nint x;\n```", "I would rather not."])
def test_no_program(text):
    assert ProgramGrader({}).extract(Task("?", "t"), text) is None


def test_the_list_is_long_enough():
    read_out = [*NUMBERS, *LETTERS, *TEXTS, *LISTS, *FORMULAS_READ]
    assert len({*read_out, *EQUAL, *DIFFERENT}) + len(FENCED) >= 400
    assert len(DIFFERENT) >= 60
