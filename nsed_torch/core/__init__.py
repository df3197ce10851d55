"""The recurrence, to be read in the order of one round.

`agent`, `prompts`, `engine`: who is asked, with what, by which interface. `protocol`: how rounds are held.
`kinds`: what a round asks for, counts and elects; `kinds.answers` is the published one. `round`: one round with models,
which asks (`asking`), rates (`ratings`), votes (`batch`, `election`) and remembers (`open_round`).
`cell`: what ratings come to, tensors alone, by `vote`, `trust`, `gate` and `memory`, whose mathematics is in
`functional`. `rnn`: rounds one after the other, with a `broker` and `halting`. Parts beside the published ones are in
`nsed_torch.parts`; `named` imports them by their names.
"""
