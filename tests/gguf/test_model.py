"""A file becomes a model, or an error that says why not; text becomes ids, ids become bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from specgen.errors import ModelLoadError, ModelNotFoundError
from specgen.llama.model import LlamaModel, LoadCancelledError, check_gguf
from tests import tiny_gguf
from tests.gguf.helpers import SENTENCE, vocabulary_of

VERSION_AT, N_TENSORS_AT, N_KEYS_AT, FIRST_KEY_LENGTH_AT = 4, 8, 16, 24
DAMAGED = "cut short or damaged"


def refusal(path) -> ModelLoadError:
    """The error of loading `path`: one line, with the path in it, and a hint."""
    with pytest.raises(ModelLoadError) as caught:
        LlamaModel(path)
    error = caught.value
    assert str(path) in error.message
    assert "\n" not in error.message
    assert error.hint
    return error


@pytest.fixture
def broken(tiny_models, tmp_path):
    """Writes a copy of a good file, cut or with other bytes somewhere, and gives its path."""

    def write(n_bytes=None, at=0, other=b""):
        data = tiny_models.llama.read_bytes()[:n_bytes]
        path = tmp_path / "broken.gguf"
        path.write_bytes(data[:at] + other + data[at + len(other) :])
        return path

    return write


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"no such file: .*nothing\.gguf") as caught:
        LlamaModel(tmp_path / "nothing.gguf")
    assert caught.value.hint


def test_a_directory_is_refused_and_the_file_inside_suggested(tmp_path):
    assert "is a directory" in refusal(tmp_path).message
    (tmp_path / "model.gguf").touch()
    assert str(tmp_path / "model.gguf") in refusal(tmp_path).hint


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "empty.gguf"
    path.touch()
    error = refusal(path)
    assert "is empty" in error.message
    assert "download it again" in error.hint


@pytest.mark.parametrize("content", [b"version https://git-lfs.github.com/spec/v1\n", b"<html>", b"GG", b"FUGG" * 9])
def test_another_kind_of_file_is_refused(tmp_path, content):
    path = tmp_path / "text.gguf"
    path.write_bytes(content)
    assert "is not a GGUF file" in refusal(path).message


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(broken):
    path = broken()
    path.chmod(0)
    assert "cannot be read" in refusal(path).message


@pytest.mark.parametrize("n_bytes", [4, 5, 8, 15, 23, 24, 30, 100, 1_000, 2_000])
def test_a_file_cut_in_its_header_is_refused(broken, n_bytes):
    error = refusal(broken(n_bytes))
    assert DAMAGED in error.hint


def test_a_file_cut_inside_a_string_of_its_header_is_called_damaged(broken):
    assert DAMAGED in refusal(broken(34)).hint


@pytest.mark.parametrize("n_lost", [1, 1_000, 200_000])
def test_a_file_cut_in_its_tensors_is_refused(broken, tiny_models, n_lost):
    error = refusal(broken(tiny_models.llama.stat().st_size - n_lost))
    assert "not within the file bounds" in error.message
    assert DAMAGED in error.hint


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (VERSION_AT, 0, "bad GGUF version"),
        (VERSION_AT, 1, "GGUFv1 is no longer supported"),
        (VERSION_AT, 99, "version 99"),
        (N_TENSORS_AT, 2**31 - 1, "cannot be loaded"),
        (N_KEYS_AT, 2**31 - 1, "cannot be loaded"),
        (FIRST_KEY_LENGTH_AT, 2**31 - 1, "string length"),
    ],
)
def test_a_damaged_header_is_refused(broken, at, value, message):
    assert message in refusal(broken(at=at, other=value.to_bytes(4, "little"))).message


def test_an_unknown_architecture_is_named(tmp_path):
    error = refusal(tiny_gguf.write_unknown(tmp_path / "unknown.gguf"))
    assert "unknown model architecture: 'blimp'" in error.message
    assert "update llama-cpp-python" in error.hint


def test_a_refusal_writes_nothing_to_the_terminal(broken, capfd):
    refusal(broken(1_000))
    refusal(broken(200_000))
    assert capfd.readouterr() == ("", "")


def test_loading_and_generating_write_nothing_to_the_terminal(tiny_models, capfd):
    LlamaModel(tiny_models.llama).close()
    assert capfd.readouterr() == ("", "")


def test_a_good_file_passes_the_check(tiny_models):
    check_gguf(tiny_models.llama)


def test_progress_runs_to_one(tiny_models):
    fractions = []
    LlamaModel(tiny_models.llama, on_progress=lambda fraction: not fractions.append(fraction)).close()
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_loading_can_be_cancelled(tiny_models):
    with pytest.raises(LoadCancelledError):
        LlamaModel(tiny_models.llama, on_progress=lambda _: False)


@pytest.mark.parametrize(
    ("kind", "n_swa", "is_recurrent", "is_hybrid"),
    [
        ("llama", 0, False, False),
        ("gemma3", 32, False, False),
        ("mamba", 0, True, False),
        ("jamba", 0, False, True),
        ("lfm2", 0, False, True),
    ],
)
def test_a_model_knows_its_memory(tiny_models, kind, n_swa, is_recurrent, is_hybrid):
    with LlamaModel(getattr(tiny_models, kind)) as model:
        assert (model.n_swa, model.is_recurrent, model.is_hybrid) == (n_swa, is_recurrent, is_hybrid)
        assert model.n_ctx_train == 2048
        assert model.description.startswith(kind)


def test_a_chat_template_is_read_and_may_be_missing(tiny_models):
    with LlamaModel(tiny_models.llama) as with_one, LlamaModel(tiny_models.gemma3) as without:
        assert with_one.chat_template == tiny_gguf.CHATML
        assert without.chat_template is None


def test_closing_twice_is_harmless(tiny_models):
    model = LlamaModel(tiny_models.llama)
    model.close()
    model.close()


TEXTS = [
    SENTENCE,
    "",
    "\0",
    "a\0b",
    "\r\n  \n\n",
    "🦙🏽‍🚀👩‍👩‍👧",
    "\ufeff\u200b\U0010ffff",
    "x" * 10_000,
    "<|im_end|> is text",
]


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_text_to_ids_and_back(tiny_models, kind, text):
    with vocabulary_of(getattr(tiny_models, kind)) as vocabulary:
        tokens = vocabulary.tokenize(text, parse_special=False)
        assert b"".join(map(vocabulary.token_bytes, tokens)) == text.encode()
        assert not {*tokens} & {*range(tiny_gguf.FIRST_BYTE)}


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_special_tokens_are_parsed_only_when_asked_for(tiny_models, kind):
    with vocabulary_of(getattr(tiny_models, kind)) as vocabulary:
        assert vocabulary.tokenize("<|im_start|><|im_end|>", parse_special=True) == [
            tiny_gguf.IM_START,
            tiny_gguf.IM_END,
        ]
        assert tiny_gguf.IM_END not in vocabulary.tokenize("<|im_end|>", parse_special=False)


def test_bos_is_added_only_when_asked_for(tiny_models):
    with vocabulary_of(tiny_models.gemma3) as vocabulary:
        assert vocabulary.adds_bos
        plain = vocabulary.tokenize("hi", parse_special=False)
        assert vocabulary.tokenize("hi", parse_special=False, add_special=True) == [tiny_gguf.BOS, *plain]


def test_a_vocabulary_describes_itself(tiny_models):
    with vocabulary_of(tiny_models.llama) as vocabulary:
        assert (vocabulary.type, vocabulary.name) == ("bpe", "llama.gguf")
        assert (vocabulary.bos_id, vocabulary.eos_id) == (tiny_gguf.BOS, tiny_gguf.IM_END)
        assert not vocabulary.adds_eos
        assert vocabulary.eog_ids == {tiny_gguf.IM_END, tiny_gguf.END_OF_TEXT}
        assert vocabulary.n_tokens == len(tiny_gguf.bpe().tokens)
        assert vocabulary.token_text(tiny_gguf.IM_END) == b"<|im_end|>"
    with vocabulary_of(tiny_models.gemma3) as vocabulary:
        assert vocabulary.type == "spm"


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_control_tokens_add_nothing_to_the_text_and_bytes_themselves(tiny_models, kind):
    with vocabulary_of(getattr(tiny_models, kind)) as vocabulary:
        assert [vocabulary.token_bytes(token) for token in range(tiny_gguf.FIRST_BYTE)] == [b""] * tiny_gguf.FIRST_BYTE
        for byte in range(256):
            assert vocabulary.token_bytes(tiny_gguf.FIRST_BYTE + byte) == bytes([byte])


def test_a_file_without_tokenizer_loads_but_has_no_text(tiny_models):
    with vocabulary_of(tiny_models.no_tokenizer) as vocabulary:
        assert (vocabulary.type, vocabulary.n_tokens, vocabulary.eog_ids) == ("none", 256, frozenset())
        with pytest.raises(ModelLoadError, match=r"no-tokenizer\.gguf carries no tokenizer") as caught:
            vocabulary.tokenize("hi", parse_special=False)
        assert caught.value.hint


@pytest.mark.parametrize("question", ["token_bytes(5)", "token_text(5)"])
def test_a_file_without_tokenizer_does_not_end_the_process(tiny_models, question):
    program = f"""
from pathlib import Path
from specgen.llama.model import LlamaModel
from specgen.errors import ModelLoadError
with LlamaModel(Path({str(tiny_models.no_tokenizer)!r})) as model:
    try:
        model.vocabulary.{question}
    except ModelLoadError:
        pass
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
