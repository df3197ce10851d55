import nsed_torch as nsed

team = nsed.MacroRNN.from_models({"ada": (qwen, tok), "bo": (llama, tok2), "cy": (qwen, tok)}, rounds=3)
print(team("Which is larger, 17 or 71?").answer)
tasks = nsed.tasks("questions.jsonl")  # {id, question, target} a line, graded
train, test = tasks.split(0.8, seed=0)
traces = nsed.collect(team, train, "runs/traces")  # resumes


class MyGate(nsed.Gate):
    def forward(self, state, news):  # what each slot keeps, what each note enters with
        return 0.9, 1.0


fitted = nsed.fit(team.cell.like(gate=MyGate()), traces, folds=5)
print(fitted)  # a table against no gate, with intervals
fitted.cell.save_pretrained("runs/mine")
cell = nsed.ConsensusCell.from_pretrained("runs/mine", gate=MyGate())
print(nsed.evaluate(team.with_(cell=cell, broker=nsed.BudgetBroker(tokens=9000)), test))
