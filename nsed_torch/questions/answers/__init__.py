"""Answers: what a text gives as its final answer, of which kind it is, and by which evidence it was read.

`kinds` says what a task asks for and reads it, `evidence` knows the ways in which a text marks an answer, `letters`
those of options. Which answers are equal says `traces.equality`, for grading and for pooling alike.
"""
