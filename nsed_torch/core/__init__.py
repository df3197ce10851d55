"""The recurrence, to be read in the order of one round.

`agent`, `prompts`, `engine`: who is asked, with what, by which interface. `round`, `ratings`: one round with models.
`cell`: what its ratings come to, tensors alone, by `vote`, `trust`, `gate` and `memory`, whose mathematics is in
`functional`. `rnn`: broker, rounds, halting.
"""
