"""Recorded rounds: which answers are equal, who said what, and how tasks are divided."""
