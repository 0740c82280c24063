"""Grammars in GBNF, llama.cpp's notation: refused here, with a line number, before llama.cpp reads them.

llama.cpp prints its own reading errors past its log, and there are grammars that it takes and then dies of: rules that
recurse to the left behind something that may be empty (memory fills up), repetitions that end before they begin (the
same), groups nested by the ten thousand (the stack overflows), and token elements (an accepted token may throw through
C). This reads what llama.cpp reads, by the same limits, and looks for those.

Source: llama.cpp, src/llama-grammar.cpp and grammars/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from specgen.errors import ConfigError

ROOT = "root"

_MAX_REPEATS = 2000  # llama.cpp's MAX_REPETITION_THRESHOLD
_MAX_DEPTH = 2000
_MAX_RULES = 20_000
"""llama.cpp looks for left recursion by recursion, one level per rule."""

_NAME = re.compile(r"[A-Za-z0-9-]+")
_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_CHARACTER = r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[trn\\\"\[\]-])"
_LITERAL = re.compile(rf'"((?:{_CHARACTER}|[^\\"])*)"')
_CLASS = re.compile(rf"\[\^?((?:{_CHARACTER}|[^\\\]])*)\]")
_LINE_END = re.compile(r"\r\n|\r|\n|\Z")


def _counts_within(blank: re.Pattern[str]) -> re.Pattern[str]:
    b = blank.pattern
    return re.compile(rf"\{{{b}([0-9]+){b}(?:(,){b}(?:([0-9]+){b})?)?\}}")


_COUNTS = {blank: _counts_within(blank) for blank in (_BLANK, _BLANK_LINES)}

_Rule = str | int
"""A rule's name, or the number of a group."""


def check_gbnf(text: str) -> None:
    """Refuse what llama.cpp cannot read, or could not survive.

    Raises:
        ConfigError: names the line.
    """
    _Reader(text).read()


@dataclass
class _Item:
    """Something in a sequence that takes up text: a rule or a group, or characters."""

    rule: _Rule | None
    is_optional: bool = False


@dataclass
class _Body:
    """The alternatives of a rule or group that is being read."""

    rule: _Rule
    n_before: int = 0  # rules of the grammar when it began
    alternatives: list[list[_Item]] = field(default_factory=lambda: [[]])
    has_item: bool = False  # whether the last symbol can be repeated
    weight: int = 1  # rules that the last symbol stands for

    def add(self, item: _Item | None, weight: int = 1) -> None:
        """The next symbol; None for an empty one."""
        if item:
            self.alternatives[-1].append(item)
        self.has_item = item is not None
        self.weight = weight


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._rules: dict[_Rule, list[list[_Item]]] = {}
        self._names: dict[str, int] = {}  # where each name is first used
        self._n_generated = 0

    def read(self) -> None:
        """The whole grammar, then what only the whole shows."""
        strange = re.search("[\0\ud800-\udfff]", self._text)
        if strange:
            raise self._error("it contains a NUL, or half a character", strange.start())
        self._skip(_BLANK_LINES)
        while self._at < len(self._text):
            self._read_rule()
        for name, at in self._names.items():
            if name not in self._rules:
                raise self._error(f"there is no rule {name}", at)
        if ROOT not in self._rules:
            raise self._error(f"there is no rule {ROOT}, where a grammar begins", 0)
        self._refuse_left_recursion()

    @property
    def _n_rules(self) -> int:
        return len(self._names) + self._n_generated

    def _read_rule(self) -> None:
        name = self._name()
        self._skip(_BLANK)
        if not self._text.startswith("::=", self._at):
            raise self._error("expecting ::=")
        self._at += 3
        self._skip(_BLANK_LINES)
        self._rules[name] = self._read_body(name)
        end = _LINE_END.match(self._text, self._at)
        if not end:
            raise self._error("expecting the end of the line")
        self._at = end.end()
        self._skip(_BLANK_LINES)
        if self._n_rules > _MAX_RULES:
            raise self._error(f"it has more than {_MAX_RULES:,} rules, repetitions counted one by one")

    def _read_body(self, name: str) -> list[list[_Item]]:
        """Up to what is no part of a rule. Groups are a stack of their own: they may nest deeper than Python's."""
        bodies = [_Body(name)]
        while True:
            body, is_group = bodies[-1], len(bodies) > 1
            next_ = self._text[self._at : self._at + 1]
            blank = _BLANK_LINES if is_group else _BLANK
            if next_ == "|":
                self._take(1, _BLANK_LINES)
                body.alternatives.append([])
                body.add(None)
            elif next_ == "(":
                self._take(1, _BLANK_LINES)
                bodies.append(_Body(self._generate(), self._n_rules - 1))
                if len(bodies) > _MAX_DEPTH:
                    raise self._error(f"groups are nested deeper than {_MAX_DEPTH:,}")
            elif next_ == ")" and is_group:
                bodies.pop()
                self._rules[body.rule] = body.alternatives
                self._take(1, _BLANK_LINES if len(bodies) > 1 else _BLANK)
                bodies[-1].add(_Item(body.rule), max(1, self._n_rules - body.n_before))
            elif next_ and next_ in "*+?{":
                self._repeat(body, *self._counts(blank), blank)
            elif not self._read_symbol(body, blank):
                if is_group:
                    raise self._error("expecting )")
                return body.alternatives

    def _read_symbol(self, body: _Body, blank: re.Pattern[str]) -> bool:
        """A literal, a class, any character, or a name."""
        next_ = self._text[self._at : self._at + 1]
        if next_ == '"':
            body.add(self._characters(_LITERAL, "text in quotes, with the escapes that GBNF knows"))
        elif next_ == "[":
            body.add(self._characters(_CLASS, "characters in brackets, with the escapes that GBNF knows"))
        elif next_ == ".":
            self._at += 1
            body.add(_Item(None))
        elif next_ and next_ in "<!":
            raise self._error("token elements (<...>) are not supported; spell the text in quotes")
        elif _NAME.match(self._text, self._at):
            body.add(_Item(self._name()))
        else:
            return False
        self._skip(blank)
        return True

    def _characters(self, pattern: re.Pattern[str], expected: str) -> _Item | None:
        match = pattern.match(self._text, self._at)
        if not match:
            raise self._error(f"expecting {expected}")
        self._at = match.end()
        return _Item(None) if match[1] else None

    def _counts(self, blank: re.Pattern[str]) -> tuple[int, int | None]:
        """How often, at least and at most, and past the sign that says so; None is without end."""
        sign = self._text[self._at]
        if sign != "{":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        match = _COUNTS[blank].match(self._text, self._at)
        if not match:
            raise self._error("expecting a repetition: {n}, {n,} or {n,m}")
        least = int(match[1])
        most = least if not match[2] else int(match[3]) if match[3] else None
        if least > _MAX_REPEATS or (most or 0) >= 2**64:
            raise self._error(f"more than {_MAX_REPEATS:,} repetitions")
        if most is not None and most < least:
            raise self._error(f"the repetition {match[0]} ends before it begins")
        self._at = match.end()
        return least, None if most is None or most > _MAX_REPEATS else most

    def _repeat(self, body: _Body, least: int, most: int | None, blank: re.Pattern[str]) -> None:
        if not body.has_item:
            raise self._error("nothing stands before the repetition")
        n_rules = most or max(least, 1)
        if body.weight * n_rules > _MAX_REPEATS:
            raise self._error(f"more than {_MAX_REPEATS:,} repetitions, those of nested groups multiplied")
        body.weight *= n_rules
        item = body.alternatives[-1][-1]
        item.is_optional = item.is_optional or least == 0
        if most == 0:
            body.alternatives[-1].pop()
            body.has_item = False
        self._n_generated += 1 if most is None else most - least
        self._skip(blank)

    def _name(self) -> str:
        match = _NAME.match(self._text, self._at)
        if not match:
            raise self._error("expecting the name of a rule")
        self._names.setdefault(match[0], self._at)
        self._at = match.end()
        return match[0]

    def _generate(self) -> int:
        self._n_generated += 1
        return self._n_generated

    def _take(self, n: int, blank: re.Pattern[str]) -> None:
        self._at += n
        self._skip(blank)

    def _skip(self, blank: re.Pattern[str]) -> None:
        match = blank.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _refuse_left_recursion(self) -> None:
        """A rule that begins with itself never comes to a character."""
        empty = self._rules_that_may_be_empty()
        begins_with = {
            rule: {first for items in alternatives for first in _firsts(items, empty)}
            for rule, alternatives in self._rules.items()
        }
        try:
            TopologicalSorter(begins_with).prepare()
        except CycleError as error:
            name = next((rule for rule in error.args[1] if isinstance(rule, str)), ROOT)
            raise self._error(f"rule {name} can begin with itself (left recursion)", self._names[name]) from None

    def _rules_that_may_be_empty(self) -> set[_Rule]:
        empty: set[_Rule] = set()
        n_before = -1
        while n_before < len(empty):
            n_before = len(empty)
            for rule, alternatives in reversed(self._rules.items()):  # rules are mostly defined after their use
                if any(all(_may_be_empty(item, empty) for item in items) for items in alternatives):
                    empty.add(rule)
        return empty

    def _error(self, message: str, at: int | None = None) -> ConfigError:
        line = self._text.count("\n", 0, self._at if at is None else at) + 1
        return ConfigError(
            f"the grammar cannot be used, line {line}: {message}",
            "GBNF is described in llama.cpp's grammars/README.md",
        )


def _may_be_empty(item: _Item, empty: set[_Rule]) -> bool:
    return item.is_optional or item.rule in empty


def _firsts(items: list[_Item], empty: set[_Rule]) -> Iterator[_Rule]:
    """The rules that a sequence can begin with."""
    for item in items:
        if item.rule is not None:
            yield item.rule
        if not _may_be_empty(item, empty):
            return
