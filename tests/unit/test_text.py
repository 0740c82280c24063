from __future__ import annotations

import itertools

import pytest

from specgen.engine.fake import FakeVocabulary
from specgen.engine.text import TextStream


def stream(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    text = TextStream(FakeVocabulary(pieces), stop)
    shown = [text.push(i) for i in range(len(pieces))]
    return shown, text


def cut_everywhere(data: bytes, n_cuts: int):
    for cuts in itertools.combinations(range(1, len(data)), n_cuts):
        edges = [0, *cuts, len(data)]
        yield [data[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize("said", ["a🦊b", "你好", "é\u0301", "👩‍👩‍👧"])
def test_a_character_split_over_tokens_is_never_shown_in_parts(said):
    for pieces in cut_everywhere(said.encode(), 3):
        shown, text = stream(pieces)
        assert "\ufffd" not in "".join(shown)
        assert "".join(shown) + text.finish() == said


def test_a_character_that_the_end_cuts_is_dropped():
    shown, text = stream([b"a", "🦊".encode()[:3]])
    assert "".join(shown) + text.finish() == "a"


def test_bytes_that_can_never_be_utf8_become_one_replacement():
    shown, _ = stream([b"a", b"\xff", b"b"])
    assert "".join(shown) == "a\ufffdb"


def test_control_tokens_add_nothing():
    shown, _ = stream([b"a", b"", b"b"])
    assert shown == ["a", "", "b"]


@pytest.mark.parametrize("n_cuts", [0, 1, 2, 3])
def test_a_stop_string_is_found_however_tokens_split_it(n_cuts):
    for pieces in cut_everywhere(b"one</x>two", n_cuts):
        shown, text = stream(pieces, ("</x>",))
        assert "".join(shown) + text.finish() == "one"
        assert text.is_stopped


def test_no_part_of_a_stop_string_is_shown_before_it_is_ruled_out():
    shown, text = stream([b"a<", b"/x", b"!"], ("</x>",))
    assert shown == ["a", "", "</x!"]
    assert not text.is_stopped


def test_what_was_held_back_for_a_stop_string_is_shown_at_the_end():
    shown, text = stream([b"a<", b"/x"], ("</x>",))
    assert "".join(shown) + text.finish() == "a</x"


def test_the_earliest_of_several_stop_strings_wins():
    shown, _ = stream([b"one two three"], ("three", "two"))
    assert "".join(shown) == "one "


def test_overlapping_beginnings_of_a_stop_string_are_kept():
    shown, text = stream([b"aa", b"ab"], ("aab",))
    assert "".join(shown) == "a"
    assert text.is_stopped


def test_nothing_follows_a_stop_string():
    shown, text = stream([b"a", b"STOP", b"more"], ("STOP",))
    assert shown == ["a", "", ""]
    assert text.finish() == ""


def test_a_stop_string_may_hold_characters_of_several_bytes():
    for pieces in cut_everywhere("ja🦊nein".encode(), 2):
        shown, _ = stream(pieces, ("🦊",))
        assert "".join(shown) == "ja"


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty"):
        TextStream(FakeVocabulary([b"a"]), ("",))
