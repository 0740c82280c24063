"""Where models go, how precise their caches are, what is planned for them: options checked, shown, refused."""

from __future__ import annotations

import pytest

from tests.cli.conftest import PROMPT

WRONG = {
    "a device that is not here": (3, ["--device", "CUDA7"], ["CUDA7", "devices here: CPU"]),
    "a draft's device that is not here": (3, ["--draft-device", "Metal"], ["--draft-device", "Metal"]),
    "layers that are no number": (2, ["--gpu-layers", "many"], ["auto, all or a number"]),
    "the draft knows no auto": (2, ["--draft-gpu-layers", "auto"], ["--draft-gpu-layers"]),
    "a cache of unknown type": (2, ["--kv-type", "q3"], ["q3", "f32, f16, bf16, q8_0"]),
    "a draft's cache of unknown type": (2, ["--draft-kv-type", "F16"], ["--draft-kv-type"]),
    "parts that are no numbers": (2, ["--tensor-split", "a,b"], ["--tensor-split"]),
    "parts without GPUs": (3, ["--tensor-split", "3,1"], ["2 parts for 0 GPUs"]),
    "layers on a GPU of the CPU": (3, ["--device", "CPU", "--gpu-layers", 3], ["contradict"]),
    "heads that do not divide": (3, ["--kv-type", "q8_0"], ["heads of 16", "--kv-type f16"]),
}


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_one_error_with_what_is_allowed(specgen, models, command, case):
    code, words, said = WRONG[case]
    prompt = [PROMPT] if command == "run" else []
    specgen(command, models.target, *prompt, "--draft", models.draft, *words).assert_error(code, *said)


def test_every_placement_is_in_the_settings(specgen, models):
    words = ["--device", "cpu", "--draft-device", "CPU", "--kv-type", "f16", "--draft-kv-type", "bf16", "--fit"]
    settings = specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 2, "--json", *words).json["settings"]
    assert (settings["devices"], settings["draft_devices"]) == (["CPU"], ["CPU"])
    assert (settings["kv_type"], settings["draft_kv_type"]) == ("f16", "bf16")


def test_the_header_shows_the_caches(specgen, models):
    words = ["--gpu-layers", "auto", "--kv-type", "bf16", "--draft-kv-type", "f16"]
    shown = specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 2, *words).stderr
    assert "(bf16 and f16 cache)" in shown


@pytest.mark.parametrize("flag", ["--draft-device", "--draft-kv-type"])
def test_an_option_of_the_draft_needs_one(specgen, models, flag):
    value = {"--draft-device": "CPU", "--draft-kv-type": "f16"}[flag]
    specgen.run(models.target, PROMPT, flag, value).assert_error(3, flag, "draft")


def test_a_plan_is_a_table_that_no_terminal_cuts(specgen, models):
    shown = specgen("plan", models.target, "--draft", models.draft)
    assert shown.code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 60
    assert [line.split()[0] for line in shown.stdout.splitlines() if "  fits" in line] == ["RAM"]
    assert "It fits." in shown.stdout
    assert shown.stderr == ""


def test_the_plan_of_a_context_too_large_exits_with_0_and_proposes_one_that_fits(specgen, models):
    words = ["plan", models.long, "--json", "-c", 2_000_000_000]
    plan = specgen(*words).json
    assert (plan["fits"], plan["verdict"]) == (False, "does not fit")
    flags = next(found["flags"] for found in plan["proposals"] if found["flags"].startswith("--ctx-size"))
    assert specgen("plan", models.long, "--json", *flags.split()).json["fits"]


def test_a_run_without_room_is_refused_with_numbers(specgen, models):
    found = specgen.run(models.long, PROMPT, "-c", 2_000_000_000)
    found.assert_error(6, "not enough memory: RAM needs", "MiB and has", "--ctx-size")


def test_a_plan_without_draft(specgen, models):
    words = ["plan", models.target, "--draft", models.draft, "--no-draft"]
    specgen(*words).assert_error(2, "--no-draft")
    assert specgen(*words[:2], "--no-draft", "--json").json["draft"] is None


def test_no_such_file(specgen):
    specgen("plan", "none.gguf").assert_error(4, "none.gguf")
