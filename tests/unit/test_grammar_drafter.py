"""Forced text becomes the tokens that a tokenizer would make of it where it stands."""

from __future__ import annotations

import pytest

from specgen.drafting.grammar import GrammarDrafter

PIECES = [b"", b'{"', b'"', b"name", b"na", b'":', b" ", b"x", b"\xc3", b"\xa9", "é".encode(), b"{", b"me"]
END, OPEN, QUOTE, NAME, NA, COLON, SPACE, X, LEAD, REST, E_ACUTE, BRACE, ME = range(len(PIECES))


class LongestMatch:
    """Cuts text into the longest pieces, as byte-level tokenizers nearly do."""

    def token_bytes(self, token):
        return PIECES[token]

    def tokenize(self, text, *, parse_special):
        data, tokens = text.encode(), []
        while data:
            fits = [i for i, piece in enumerate(PIECES) if piece and data.startswith(piece)]
            best = max(fits, key=lambda i: len(PIECES[i]))
            tokens.append(best)
            data = data[len(PIECES[best]) :]
        return tokens


class WithLeadingSpace(LongestMatch):
    """Puts a space before every text, as SentencePiece does."""

    def tokenize(self, text, *, parse_special):
        return super().tokenize(" " + text, parse_special=parse_special)


class Script:
    """A grammar with one text."""

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self.reset()

    def reset(self):
        self.said = b""

    def accept(self, token):
        self.said += PIECES[token]

    def forced(self, n_bytes):
        assert self.text.startswith(self.said)
        return self.text[len(self.said) :][:n_bytes]


def offered(text, history, n=8, tokenizer=None, prompt=(END,)):
    drafter = GrammarDrafter(Script(text), tokenizer or LongestMatch())
    drafter.begin(prompt)
    return [proposal.token for proposal in drafter.offer([*prompt, *history], n)]


@pytest.mark.parametrize("tokenizer", [LongestMatch(), WithLeadingSpace()], ids=lambda t: type(t).__name__)
@pytest.mark.parametrize(
    ("text", "history", "tokens"),
    [
        ('{"name":x', [OPEN], [NAME, COLON]),
        ("éé x", [E_ACUTE], [E_ACUTE, SPACE]),
        ("x", [X], []),
    ],
)
def test_all_forced_tokens_but_the_last_are_offered(text, history, tokens, tokenizer):
    assert offered(text, history, tokenizer=tokenizer) == tokens


def test_a_token_that_would_have_begun_before_is_cut_where_the_forced_text_begins():
    assert offered('{"name":', [BRACE]) == [QUOTE, NAME]


def test_what_the_model_cut_in_an_odd_place_goes_on_from_there():
    assert offered('{"name":', [OPEN, NA]) == [ME]


def test_where_cutting_adds_to_the_text_nothing_is_offered():
    assert offered('{"name":', [BRACE], tokenizer=WithLeadingSpace()) == []


def test_in_the_middle_of_a_character_nothing_is_offered():
    assert offered("éx x", [LEAD]) == []
    assert offered("éx x", [LEAD, REST]) == [X, SPACE]


def test_no_more_is_offered_than_is_asked_for():
    assert offered("x" * 50, [X], n=3) == [X, X, X]


def test_a_prompt_is_no_part_of_what_the_grammar_follows():
    assert offered('{"name":', [OPEN], prompt=(X, X, X)) == [NAME]


def test_a_second_answer_begins_anew_and_tokens_are_taken_in_once():
    drafter = GrammarDrafter(Script('{"name": x'), LongestMatch())
    for _ in range(2):
        drafter.begin([X])
        assert [p.token for p in drafter.offer([X, OPEN], 8)] == [NAME, COLON, SPACE]
        assert [p.token for p in drafter.offer([X, OPEN, NAME], 8)] == [COLON, SPACE]
        assert [p.token for p in drafter.offer([X, OPEN, NAME, COLON], 8)] == [SPACE]
        drafter.commit(2)
    assert set(drafter.busy_s) == {"grammar"}
