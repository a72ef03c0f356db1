"""Reward of a prepared arithmetic task: 1 for exactly the right digits, else 0. Every task folder holds a copy."""


def reward(prompt: str, response: str, answer: str) -> float:
    """Compare the response before its end token with the answer; the prompt is not used."""
    return 1.0 if response.removesuffix("<eos>") == answer else 0.0
