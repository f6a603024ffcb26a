# The two commands of the README are `make train` and `make test`; each sets everything up itself.
#
#   VENV=path     the environment to use; made if it is not there (default .venv)
#   PYTHON=…      the interpreter to make it with (default python3)
#   TORCH=…       the torch to install where there is none yet (default the release we test with;
#                 add --index-url https://download.pytorch.org/whl/cpu for a build without CUDA)

VENV ?= .venv
PYTHON ?= python3
TORCH ?= torch==2.13.0
TRANSFORMERS ?= transformers>=5
TESTS ?= tests
WORKERS ?= 2

BIN = $(VENV)/bin
INSTALLED = $(VENV)/.declutr-installed

.PHONY: help install train test test-fast test-compat lint clean

help:  ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## make VENV and install declutr, AllenNLP and what tests need

$(INSTALLED): setup.py pyproject.toml declutr_bridge.pth
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "setuptools>=68" wheel
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e ".[test]" "$(TRANSFORMERS)"
	$(BIN)/python -m pip install --quiet --no-deps allennlp==2.10.1
	touch $(INSTALLED)

train: install  ## train on the docstrings of the installed packages, embed, and show what it gave
	$(BIN)/python scripts/quickstart.py $(ARGS)

test: install  ## run all tests
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

test-fast: install  ## run the tests that start no process and train nothing, in about two minutes
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(TESTS)

test-compat:  ## run all tests on the last transformers 4 and on the latest 5
	$(MAKE) test VENV=.venv-transformers4 TRANSFORMERS="transformers>=4.57,<5"
	$(MAKE) test VENV=.venv-transformers5 TRANSFORMERS="transformers>=5"

lint: install  ## ruff and mypy
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

.PHONY: package
package:  ## build sdist and wheel into dist, and try the wheel in a new environment
	PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/check_wheel.sh dist

clean:  ## remove what was made here
	rm -rf .venv .venv-transformers* quickstart build dist *.egg-info
