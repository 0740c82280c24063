"""The prompts of the measurements: six kinds of text, from predictable to not at all. Written for specgen."""

from __future__ import annotations

PROMPTS = {
    "explain": "Explain to a beginner how a bicycle stays upright, in three short paragraphs.",
    "list": "List twelve European countries with their capitals, one per line, as Country: Capital.",
    "story": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "code": "Write a Python class for a bank account with deposit, withdraw and a history, with docstrings.",
    "copy": (
        "Repeat this code exactly, without changes:\n\n"
        "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
        "    return total / len(values)\n"
    ),
    "random": "Write twenty random English words that have nothing to do with each other, separated by commas.",
}


def chatml(prompt: str) -> str:
    """The prompt as a raw ChatML text, the same for programs that know no templates."""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
