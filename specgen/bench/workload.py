"""The prompts that pairs are compared on, by category: from text that can be copied to text that nobody can guess.

Written for specgen, all distinct, so that no answer teaches a drafter the next one. `WARM_UP` is for what learns or
warms up: what is met there is not measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from specgen.errors import ModelNotFoundError, UsageError

_QUEUE = """class Queue:
    def __init__(self, limit):
        self.limit = limit
        self.items = []

    def put(self, item):
        if len(self.items) >= self.limit:
            raise OverflowError("the queue is full")
        self.items.append(item)

    def get(self):
        if not self.items:
            raise LookupError("the queue is empty")
        return self.items.pop(0)
"""
_FERRIES = """ferry,built,cars,passengers
Morning Star,1987,40,250
Grey Seal,1994,65,410
North Wind,2003,12,90
Old Harbour,2011,120,780
"""
_LETTER = (
    "Dear Ms Okafor, thank you for your order 4471 of 3 May. The two oak shelves (48.50 each) leave our workshop in "
    "Leiden on Friday; the brass lamp (112.00) follows a week later. Please write to orders@example.com if the "
    "address, 12 Mill Lane, Norwich, is wrong. Yours, Piet de Vries"
)
_MINUTES = (
    "On Tuesday the garden society met in the old school. Hanna Berg, 41, was elected treasurer and takes over from "
    "Luis Prado, who held the post for nine years. The society has 63 members and 1,240 euros. The next meeting is on "
    "14 March at half past seven."
)
_RULES = (
    "The boat house opens when the first member arrives and closes at dusk. Whoever opens it writes the time and "
    "the wind into the book beside the door. Boats are taken out by two people; nobody rows alone between October "
    "and March. Life jackets hang left of the stairs, the small ones on the lower hooks. A boat that comes back is "
    "rinsed, turned over on its trestle and tied down at both ends. Oars stand in the rack with the blades up, in "
    "the order of their numbers. What is broken gets a red ribbon and a line in the book; it stays ashore until the"
    " boat keeper has taken the ribbon off. The keeper is at the house on Saturdays from ten to twelve. Guests may "
    "row with a member who has been in the club for a year. They sign the guest page, and pay four euros to the "
    "box. Dogs may come into the house but not into a boat. Bicycles stay outside. The stove is lit by those who "
    "know it, and someone remains with it until it is cold. In high water, marked by the yellow board at the "
    "bridge, all boats stay on land, and the lower doors are closed with the boards that lie under the stairs. The "
    "club meets on the first Monday of the month at seven in the evening. Decisions need half of the members that "
    "are present, and at least nine. Fees are due in January: sixty euros, thirty for pupils, nothing for those "
    "over eighty. Who has not paid by April gets a letter, and who has not paid by June gives the key back. New "
    "members learn to turn the boat, to take a person out of the water and to read the boards at the weir before "
    "they get a key of their own."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text of a category.

    Attributes:
        category: what kind of text the answer is.
        name: unique in a workload.
        text: what the user says.
    """

    category: str
    name: str
    text: str


_TEXTS: dict[str, tuple[str, ...]] = {
    "code": (
        "Write a Python function that merges two sorted lists into one, with a docstring and three tests.",
        "Write a small HTML page with a form for a name and an e-mail address, and a button that sends it.",
    ),
    "edit": (
        f"Rename the method `put` to `push` in this class and change nothing else:\n\n```python\n{_QUEUE}```\n",
        f"Write this table again with a tab instead of every comma:\n\n{_FERRIES}",
    ),
    "extract": (
        "Extract the sender, the recipient, the order number, the items with their prices and the address from this "
        f"letter as JSON:\n\n{_LETTER}",
        f"Extract the people with their ages and posts, and all numbers with what they count, as JSON:\n\n{_MINUTES}",
    ),
    "chat": (
        "My tomato plants have yellow leaves at the bottom. What could be wrong, and what should I do first?",
        "I have two days in a city by the sea and it will rain. How should I spend them?",
    ),
    "story": (
        "Write the beginning of a story about a clockmaker who finds a watch that runs backwards.",
        "Write a short tale in which a fox and a heron share a winter.",
    ),
    "maths": (
        "A train leaves at 8:10 and travels 150 km at 60 km/h; another leaves at 8:40 and travels the same way at 80 "
        "km/h. Which arrives first, and by how much? Show every step.",
        "Anna has three times as many stamps as Ben; together they have 96. How many has each? Explain step by step.",
    ),
    "translation": (
        "Translate into German: The last bus leaves at ten, so we should say goodbye to our friends before the film "
        "ends and walk to the square together.",
        "Translate into French: My neighbour keeps bees on the roof, and every autumn she gives each of us a jar of "
        "honey with a label that her children have painted.",
    ),
    "long": (
        f"These are the rules of a rowing club:\n\n{_RULES}\n\nA new member asks what to do after coming back from the "
        "water, and what it costs to be in the club. Answer from the rules.",
        f"{_RULES}\n\nSum up this text in ten short points.",
    ),
}
"""Texts by category; the first of each are always measured, the second where there is time."""

WARM_UP = (
    Prompt("warm-up", "warm-up 1", "Write a Python function that counts the vowels in a text, and explain it."),
    Prompt("warm-up", "warm-up 2", "Describe in two paragraphs how a letter travels from one town to another."),
    Prompt("warm-up", "warm-up 3", "List eight musical instruments and say in a few words how each is played."),
)


def built_in() -> list[Prompt]:
    """specgen's own prompts: the first of every category, then the second ones."""
    n_each = max(map(len, _TEXTS.values()))
    return [
        Prompt(category, f"{category} {i + 1}", texts[i])
        for i in range(n_each)
        for category, texts in _TEXTS.items()
        if i < len(texts)
    ]


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file: JSONL where its name ends so, else text.

    JSONL has one object per line, `{"prompt": ..., "category": ...}`, the category being optional. In a text, prompts
    are separated by lines that hold nothing but `---`; without any, the whole text is one prompt. Prompts without a
    category belong to one that is named after the file.

    Raises:
        ModelNotFoundError: no such file.
        UsageError: the file cannot be read, has no prompts, or a line that is none.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ModelNotFoundError(f"no such file of prompts: {path}", "check the path") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "give a text or JSONL file of prompts") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8", "convert it first, for example: iconv -f latin1 -t utf-8") from None
    is_jsonl = path.suffix.lower() in (".jsonl", ".ndjson")
    pairs = _of_jsonl(path, text) if is_jsonl else [(path.stem, part) for part in _of_text(text)]
    if not pairs:
        raise UsageError(f"{path} has no prompts", "write one per block, with a line --- between two of them")
    return [Prompt(category, f"{category} {i}", prompt) for i, (category, prompt) in enumerate(pairs, start=1)]


def _of_text(text: str) -> list[str]:
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == "---":
            parts.append([])
        else:
            parts[-1].append(line)
    texts = ["\n".join(lines).strip("\n") for lines in parts]
    return [part for part in texts if part.strip()]


def _of_jsonl(path: Path, text: str) -> list[tuple[str, str]]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            prompt, category = entry["prompt"], entry.get("category", path.stem)
        except (ValueError, KeyError, TypeError, AttributeError):
            prompt = category = None
        if not isinstance(prompt, str) or not isinstance(category, str) or not prompt.strip() or not category.strip():
            raise UsageError(
                f"{path}, line {number}: not a prompt", 'write {"prompt": "...", "category": "..."} on every line'
            )
        found.append((category, prompt))
    return found
