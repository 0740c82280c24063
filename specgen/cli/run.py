"""`specgen run`: one prompt, one answer, and what speculation did for it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from specgen.choices import AcceptRule, DraftType
from specgen.cli import _placement
from specgen.errors import UsageError

_MODELS = "Models"
_PROMPT = "Prompt"
_SAMPLING = "Sampling"
_DRAFTING = "Drafting"
_MACHINE = _placement.PANEL
_OUTPUT = "Output"

_WAITING = "waiting for the prompt on stdin; --no-stdin leaves stdin alone"


def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAIR] [PROMPT]",
            help="A pair's name or a GGUF file, then the prompt in quotes; with --target only the prompt.",
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Option(help="The model that decides the text (GGUF).", rich_help_panel=_MODELS)
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="The model that drafts; replaces a pair's own.", rich_help_panel=_MODELS)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.", rich_help_panel=_PROMPT)
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message.", rich_help_panel=_PROMPT)] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="No chat template: continue the text as it is.", rich_help_panel=_PROMPT)
    ] = False,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Leave stdin alone.", rich_help_panel=_PROMPT)] = False,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=0, help="Longest answer.", rich_help_panel=_SAMPLING)
    ] = 1024,
    stop: Annotated[
        list[str] | None, typer.Option(help="End the answer before this text. Repeatable.", rich_help_panel=_SAMPLING)
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Never end before the token limit.", rich_help_panel=_SAMPLING)
    ] = False,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", "--temp", min=0, help="0 is greedy: always the likeliest token.", rich_help_panel=_SAMPLING
        ),
    ] = 0.0,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=0, show_default="40", help="Keep the k likeliest tokens; 0 is off.", rich_help_panel=_SAMPLING
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, show_default="0.95", help="Nucleus; 1 is off.", rich_help_panel=_SAMPLING),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            show_default="0.05",
            help="Cut below this share of the best; 0 is off.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None,
    typical_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, show_default="1", help="Locally typical; 1 is off.", rich_help_panel=_SAMPLING),
    ] = None,
    xtc_probability: Annotated[
        float | None,
        typer.Option(min=0, max=1, show_default="0", help="Chance of XTC; 0 is off.", rich_help_panel=_SAMPLING),
    ] = None,
    xtc_threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, show_default="0.1", help="Threshold of XTC.", rich_help_panel=_SAMPLING),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**32 - 2, show_default="random", help="Same seed, same text.", rich_help_panel=_SAMPLING
        ),
    ] = None,
    repeat_penalty: Annotated[
        float, typer.Option(min=0.01, help="Penalty of repeated tokens; 1 is off.", rich_help_panel=_SAMPLING)
    ] = 1.0,
    repeat_last_n: Annotated[
        int | None,
        typer.Option(
            min=-1, show_default="64", help="Tokens that penalties look at; -1 is all.", rich_help_panel=_SAMPLING
        ),
    ] = None,
    presence_penalty: Annotated[
        float, typer.Option(help="Presence penalty; 0 is off.", rich_help_panel=_SAMPLING)
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="Frequency penalty; 0 is off.", rich_help_panel=_SAMPLING)
    ] = 0.0,
    dry_multiplier: Annotated[
        float, typer.Option(min=0, help="Strength of the DRY repetition penalty; 0 is off.", rich_help_panel=_SAMPLING)
    ] = 0.0,
    grammar: Annotated[
        str | None,
        typer.Option(
            metavar="GBNF|FILE",
            help="The answer must match this grammar, in llama.cpp's notation.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None,
    json_schema: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE", help="The answer must be JSON that fits this schema.", rich_help_panel=_SAMPLING
        ),
    ] = None,
    gamma: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Draft length, for all drafters; auto drafts as long as it pays, 0 is plain decoding.",
            rich_help_panel=_DRAFTING,
        ),
    ] = "auto",
    draft_type: Annotated[
        str,
        typer.Option(
            metavar="TYPE[,TYPE]",
            help="What drafts: model, suffix (text that repeats), lookup (the same, last time only), grammar, auto, "
            "none.",
            rich_help_panel=_DRAFTING,
        ),
    ] = "auto",
    draft_corpus: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Text that the answer may resemble, such as earlier answers, for suffix drafts.",
            rich_help_panel=_DRAFTING,
        ),
    ] = None,
    accept: Annotated[
        AcceptRule | None,
        typer.Option(
            show_default="block",
            help="At temperature > 0: block and reject (token by token) keep the target's distribution, match the very "
            "text of plain decoding.",
            rich_help_panel=_DRAFTING,
        ),
    ] = None,
    require_draft: Annotated[
        bool, typer.Option("--require-draft", help="Fail rather than decode plainly.", rich_help_panel=_DRAFTING)
    ] = False,
    ctx_size: Annotated[
        int | None,
        typer.Option(
            "--ctx-size",
            "-c",
            min=1,
            show_default="4096, or what is needed",
            help="Tokens of context.",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", "-t", min=1, show_default="physical cores", help="CPU threads.", rich_help_panel=_MACHINE
        ),
    ] = None,
    gpu_layers: _placement.GpuLayersOption = "all",
    draft_gpu_layers: _placement.DraftGpuLayersOption = None,
    device: _placement.DeviceOption = None,
    draft_device: _placement.DraftDeviceOption = None,
    tensor_split: _placement.TensorSplitOption = None,
    rpc: _placement.RpcOption = None,
    fit: _placement.FitOption = False,
    kv_type: _placement.KvTypeOption = None,
    draft_kv_type: _placement.DraftKvTypeOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout instead of the text.", rich_help_panel=_OUTPUT)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.", rich_help_panel=_OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="llama.cpp's log on stderr.", rich_help_panel=_OUTPUT)
    ] = False,
) -> int:
    """Answer one prompt with a draft and a target model.

    The text goes to stdout, everything about it to stderr. Decoding is greedy unless --temperature says otherwise.
    """
    from specgen.cli._answer import Question, answer
    from specgen.cli._grammar import read_grammar
    from specgen.cli._options import sampling_params, session_params, split_words
    from specgen.cli._output import Output
    from specgen.cli._prompt import read_prompt, require_text
    from specgen.pairs.resolve import find
    from specgen.session import Decoding

    output = Output(is_quiet=quiet, is_json=json)
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    word, prompt_word = split_words(words or [], target)
    model = word if isinstance(word, Path) else find(word)
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other", "leave out one of them")
    texts = {"the prompt": prompt_word, "--system": system, "--grammar": grammar, "--json-schema": json_schema}
    for flag, text in (*texts.items(), *(("--stop", text) for text in stop or ())):
        require_text(flag, text)
    if raw and system is not None:
        raise UsageError("--system has no place in a --raw prompt", "leave out one of them")
    given = {
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "typical_p": typical_p,
        "xtc_probability": xtc_probability,
        "xtc_threshold": xtc_threshold,
        "repeat_penalty": repeat_penalty,
        "repeat_last_n": repeat_last_n,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "dry_multiplier": dry_multiplier,
    }
    gbnf = read_grammar(grammar, json_schema, output.note)
    sampling = replace(sampling_params(temperature, seed, given, output.note), grammar=gbnf)
    has_draft = draft is not None or not isinstance(model, Path)
    placement = _placement.placement_options(
        gpu_layers=gpu_layers,
        draft_gpu_layers=draft_gpu_layers,
        device=device,
        draft_device=draft_device,
        tensor_split=tensor_split,
        kv_type=kv_type,
        draft_kv_type=draft_kv_type,
        fit=fit,
        rpc=rpc or (),
    )
    params = session_params(
        has_draft=has_draft,
        has_grammar=bool(gbnf),
        gamma=gamma,
        draft_type=draft_type,
        corpus=draft_corpus,
        threads=threads,
        placement=placement,
        requires_draft=require_draft,
        note=output.note,
    )
    if accept is not None and sampling.is_greedy:
        output.note("--accept has no effect at temperature 0, which is greedy")
    elif accept is not None and (not params.draft_types or params.gamma == 0):
        output.note("--accept has no effect without drafts")
    if params.gamma and not params.draft_types:
        output.note("--gamma has no effect with --draft-type none")
    if draft is not None and params.gamma != 0 and DraftType.MODEL not in params.draft_types:
        output.note("--draft has no effect without model in --draft-type")
    prompt = read_prompt(prompt_word, file, reads_stdin=not no_stdin, on_wait=lambda: output.note(_WAITING))
    question = Question(prompt, system, raw, max_tokens, tuple(stop or ()), ctx_size)
    decoding = Decoding(sampling, accept or AcceptRule.BLOCK, ignore_eos)
    return answer(output, model, draft, params, placement, decoding, question)
