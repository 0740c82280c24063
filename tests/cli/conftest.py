"""Models that say what a test needs, and the command to run them with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import tiny_gguf
from tests.cli.command import Result, Specgen

PROMPT = "Once upon a time"
N_LONG = 60_000
"""More tokens than any test waits for."""


@dataclass(frozen=True)
class Models:
    """Paths of models that all have the ChatML template and, unless the name says otherwise, one vocabulary.

    Attributes:
        target, draft: a pair; its answers run to the token limit.
        long: a target with a context for answers that nobody waits for.
        ending: a target that ends its answers.
        bold, escaping, c1: what they say looks like Rich markup, escape sequences, the same as C1 controls.
        newline, lines: says nothing but newlines, nothing but short lines.
        other_vocabulary: token 100 has another text.
        plain: a base model, without a template.
        recurrent: cannot take tokens back.
        no_tokenizer, encoder: cannot answer.
    """

    target: Path
    draft: Path
    long: Path
    ending: Path
    bold: Path
    escaping: Path
    c1: Path
    newline: Path
    lines: Path
    other_vocabulary: Path
    plain: Path
    recurrent: Path
    no_tokenizer: Path
    encoder: Path


@pytest.fixture(scope="session")
def models(tiny_models, tmp_path_factory) -> Models:
    folder = tmp_path_factory.mktemp("cli-models")

    def write(name: str, **changes) -> Path:
        return tiny_gguf.write_llama(folder / f"{name}.gguf", chat_template=tiny_gguf.CHATML, **changes)

    def saying(name: str, text: str, spell: Callable[[str, int], str] = "{0}{1}".format) -> Path:
        """All that it says is `text`, in GPT-2's letters, spelled in 22 ways: no two tokens have one text."""
        first = tiny_gguf.FIRST_BYTE + 256
        spoken = range(first, len(tiny_gguf.bpe().tokens))
        tokenizer = tiny_gguf.bpe(spoken=frozenset(spoken), chat_template=tiny_gguf.CHATML)
        texts = {token: spell(text, token - first) for token in spoken}
        return write(name, tokenizer=tokenizer, tokens=texts, n_ctx_train=2**16)

    letters = frozenset(tiny_gguf.FIRST_BYTE + byte for byte in b"abcdef")
    ends = tiny_gguf.bpe(spoken=letters | {tiny_gguf.IM_END}, chat_template=tiny_gguf.CHATML)
    return Models(
        target=tiny_models.llama,
        draft=tiny_models.llama_draft,
        long=write("long", n_ctx_train=2**16),
        ending=write("ending", tokenizer=ends),
        bold=saying("bold", "[bold]b[/]"),
        escaping=saying("escaping", f"x{_gpt2(0x1B)}[31m{_gpt2(0x1B)}[2J{_gpt2(0x07)}{_gpt2(0x0D)}"),
        c1=saying("c1", f"yÂ{_gpt2(0x9B)}2J"),
        newline=saying("newline", _gpt2(0x0A), lambda letter, i: (i + 2) * letter),
        lines=saying("lines", _gpt2(0x0A), lambda letter, i: f"line{i}{letter}"),
        other_vocabulary=write("other-vocabulary", tokens={100: "XX"}),
        plain=tiny_gguf.write_llama(folder / "plain.gguf"),
        recurrent=tiny_models.mamba,
        no_tokenizer=tiny_models.no_tokenizer,
        encoder=tiny_models.t5_encoder,
    )


@pytest.fixture(scope="session")
def specgen(tmp_path_factory) -> Specgen:
    return Specgen(tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="session")
def answer(specgen, models) -> Result:
    """An answer with a draft, as text: most tests that only read it share it."""
    return specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 200)


def _gpt2(byte: int) -> str:
    """The letter that byte-level BPE writes for a control byte."""
    return tiny_gguf.bpe().tokens[tiny_gguf.FIRST_BYTE + byte]
