# The two commands of the README are `make train` and `make test`; each sets everything up itself.
#
#   VENV=path     the environment to use; made if it is not there (default .venv)
#   PYTHON=…      the interpreter to make it with (default python3)
#   TORCH=…       the torch to install where there is none yet (default the release we test with;
#                 add --index-url https://download.pytorch.org/whl/cpu for a build without CUDA)
#   CONSTRAINTS=… a file of versions to keep to, such as constraints.txt (default none)

VENV ?= .venv
PYTHON ?= python3
TORCH ?= torch==2.13.0
TRANSFORMERS ?= transformers>=5
CONSTRAINTS ?=
TESTS ?= tests
WORKERS ?= 2

BIN = $(VENV)/bin
INSTALLED = $(VENV)/.declutr-installed
KEEP = $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

# Tests of what an old release may break: the bridge, files, commands, embedding and export, and one
# training from the recipe to the embeddings.
LOWEST = .venv-lowest
LOWEST_TESTS ?= tests/bridge tests/corpus tests/commands tests/export tests/inference

.PHONY: help install train test test-fast test-long test-compat
.PHONY: lint docs clean

help:  ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## make VENV and install declutr, AllenNLP and what tests need

$(INSTALLED): setup.py pyproject.toml declutr_bridge.pth
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "setuptools>=68" wheel
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet $(KEEP) -e ".[test]" "$(TRANSFORMERS)"
	$(BIN)/declutr setup
	touch $(INSTALLED)

train: install  ## train on the docstrings of the installed packages, embed, and show what it gave
	$(BIN)/python scripts/quickstart.py $(ARGS)

test: install  ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

test-fast: install  ## run the tests that start no process and train nothing, in 2 to 5 minutes
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not long" $(TESTS)

test-long: install  ## run the tests marked `long`, which repeat on more cases what others show
	$(BIN)/python -m pytest -n $(WORKERS) -m long $(TESTS)

test-compat:  ## run all tests on the last transformers 4 and on the latest 5
	$(MAKE) test VENV=.venv-transformers4 TRANSFORMERS="transformers>=4.57,<5"
	$(MAKE) test VENV=.venv-transformers5 TRANSFORMERS="transformers>=5"

.PHONY: test-allennlp test-allennlp-here clones test-lowest test-pythons constraints

test-allennlp: clones  ## run the tests of clones ALLENNLP=… and MODELS=… on both transformers (half an hour each)
	@status=0; \
	$(MAKE) test-allennlp-here VENV=.venv-transformers5 TRANSFORMERS="transformers>=5" || status=1; \
	$(MAKE) test-allennlp-here VENV=.venv-transformers4 TRANSFORMERS="transformers>=4.57,<5" || status=1; \
	exit $$status

test-allennlp-here: clones install  ## the same in VENV alone; ARGS="--rooms allennlp/data" for a part
	$(BIN)/python -m pip install --quiet -r tests/allennlp_suites/requirements.txt "$(TRANSFORMERS)"
	$(BIN)/python -m tests.allennlp_suites "$(ALLENNLP)" "$(MODELS)" $(ARGS)

clones:
	@test -n "$(ALLENNLP)" -a -n "$(MODELS)" || { echo "Clone github.com/allenai/allennlp (v2.10.1)" \
	"and allennlp-models, and give their folders: make test-allennlp ALLENNLP=… MODELS=…"; exit 2; }

test-lowest:  ## run the tests that matter with the lowest releases that setup.py admits, but TORCH
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv $(TORCH)
	$(LOWEST)/bin/python -m pip freeze | grep "^torch==" >$(LOWEST)/torch.txt
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
		--constraints $(LOWEST)/torch.txt -e ".[test]"
	$(LOWEST)/bin/python -m pip install --quiet --no-deps allennlp==2.10.1
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) -m "not slow" $(LOWEST_TESTS)
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) -m slow tests/bridge
	$(LOWEST)/bin/python scripts/try_installation.py

test-pythons:  ## install the package for each Python from 3.10 on that is found, and try it
	$(PYTHON) scripts/try_pythons.py --torch "$(TORCH)" --constraints constraints.txt $(ARGS)

constraints:  ## write constraints.txt: the releases to test with, for each Python; ARGS=--upgrade
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile setup.py --quiet --universal --python-version 3.10 --extra test \
		--extra plots --no-annotate --custom-compile-command "make constraints" $(ARGS) \
		--output-file constraints.txt

lint: install  ## ruff and mypy
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

.PHONY: package
package:  ## build sdist and wheel into dist, and try the wheel in a new environment
	PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/check_wheel.sh dist

docs: install  ## make a site of docs/ and the docstrings in build/site
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

clean:  ## remove what was made here
	rm -rf .venv .venv-transformers* $(LOWEST) quickstart build dist *.egg-info
