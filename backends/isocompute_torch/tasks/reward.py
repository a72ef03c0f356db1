"""Reward of a prepared arithmetic task: 1 for exactly the right digits, else 0. A copy lies beside the problems."""


def reward(prompt: str, response: str, answer: str) -> float:
    """Compare what the model wrote before its end token with the answer; the prompt plays no part."""
    return 1.0 if response.removesuffix("<eos>") == answer else 0.0
