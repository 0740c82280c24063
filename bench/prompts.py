"""The prompts of the measurements, by category: from text that can be copied to text that nobody can guess.

Written for specgen, all distinct, so that no answer teaches a program the next one. `WARM_UP` is for programs that
learn: what they meet there is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_STACK = """class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("pop from an empty stack")
        return self.items.pop()

    def peek(self):
        if not self.items:
            raise IndexError("peek at an empty stack")
        return self.items[-1]
"""
_STATIONS = """station,opened,platforms,passengers
Alder Street,1904,2,18200
Bridge End,1911,4,40150
Canal Basin,1926,2,9700
Dock Road,1931,6,61300
Elm Park,1948,2,15840
"""
_STEPS = """1. Switch off the machine and pull the plug.
2. Open the lid and take out the filter.
3. Rinse the filter under warm water for a minute.
4. Dry the filter with a soft cloth.
5. Put the filter back and close the lid.
6. Plug the machine in and switch it on.
"""
_NOTICE = (
    "The library opens at nine on weekdays and at ten on Saturdays. Mebers may borrow six books for three weeks. "
    "Books that are late cost twenty cents a day. The reading room is quite, and drinks are not allowed there. "
    "The library is closed on Sundays and on public holidays."
)

PROMPTS: dict[str, tuple[str, ...]] = {
    "explain": ("Explain to a beginner how a bicycle stays upright, in three short paragraphs.",),
    "list": ("List twelve European countries with their capitals, one per line, as Country: Capital.",),
    "story": ("Write a short story about a lighthouse keeper who finds a message in a bottle.",),
    "code": ("Write a Python class for a bank account with deposit, withdraw and a history, with docstrings.",),
    "copy": (
        f"Copy this code:\n\n```python\n{_STACK}```\n",
        f"Repeat this table exactly, without changes:\n\n{_STATIONS}",
        f"Repeat these instructions exactly, without changes:\n\n{_STEPS}",
    ),
    "edit": (
        f"Write this table again with semicolons instead of commas:\n\n{_STATIONS}",
        f"In these instructions, replace warm water with cold water:\n\n{_STEPS}",
        f"Correct the spelling mistakes:\n\n{_NOTICE}",
    ),
    "short": ("In one or two sentences: why does bread rise?",),
    "random": ("Invent twenty strange names for towns on another planet, one per line.",),
}
"""Texts per category. `random` is there to lose: drafts guess it badly, and there is nothing to copy."""

WARM_UP = (
    "Describe in two paragraphs how a letter travels from one town to another.",
    "List eight musical instruments and say in a few words how each is played.",
    "Write a Python function that counts the vowels in a text, and explain it.",
    "Repeat this line exactly, without changes:\n\nfor name, age in people: print(name, age, sep=': ', flush=True)\n",
)


@dataclass(frozen=True)
class Prompt:
    """One text of a category; its name is unique."""

    category: str
    name: str
    text: str


def prompts_of(categories: Sequence[str], n_each: int) -> list[Prompt]:
    """The first `n_each` texts of every category, in order."""
    found = []
    for category in categories:
        texts = PROMPTS[category][:n_each]
        names = [category] if len(texts) == 1 else [f"{category} {i}" for i, _ in enumerate(texts, 1)]
        found += [Prompt(category, name, chatml(text)) for name, text in zip(names, texts, strict=True)]
    return found


def chatml(prompt: str) -> str:
    """The prompt as a raw ChatML text, the same for programs that know no templates."""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
