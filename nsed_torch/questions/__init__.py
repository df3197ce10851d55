"""Tasks with targets, and how answers to them are graded.

Published sets are read by `math_tasks`, `choice_tasks` and `code_tasks`.
"""
