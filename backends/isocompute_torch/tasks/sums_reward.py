"""Reward of sums and differences: 1 if the first whole number of the response is the answer, else 0."""

import re


def reward(prompt: str, response: str, answer: str) -> float:
    """Compare the first whole number with the answer; the prompt is not used."""
    found = re.search(r"-?\d+", response)
    return float(found is not None and found.group() == answer)
