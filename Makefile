# Every target creates .venv and installs what it needs; a second run finds the stamp and skips that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Variables of `make demo` and of the studies; they reach the shell through the environment, so any text is safe.
output_dir ?= runs/demo
jobs ?= 2
data ?= data
export output_dir jobs data
export PIP_DISABLE_PIP_VERSION_CHECK := 1
SHELL := /bin/bash
, := ,

# The Python that makes .venv, checked before anything is installed; then what pip does, large files and time alone.
python = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "setup: expected Python 3.11 or newer, got %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
install = @set -o pipefail; $(BIN)/python -m pip install --progress-bar off -c constraints.txt $(1) 2>&1 | tee -a $(VENV)/install.log | \
	awk '/Downloading .* [MG]B\)/ {sub(/^ */, ""); print "  " $$0} /^Installing/ {print "  installing " NF - 3 " packages"} /^ERROR/ {print} {fflush()}' && \
	echo "setup: $(1) took $$SECONDS s"

# Every worker and child process would compile everything anew where the environment forbids to keep compiled modules.
# There is a worker a core: with threads of their own they would wait for each other.
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test attack mutants lint docs wheel bench results labels recorded check-results clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## three acts of what a team does that its best member cannot, and their page (output_dir=runs/demo)
	@echo "demo: a few minutes on two idle cores, more where they are busy; weights are fetched once"
	@$(BIN)/nsed demo "output_dir=$$output_dir"

test: $(VENV)/.dev ## run all tests, real models included (NSED_OFFLINE=1 leaves those out)
	@echo "test: the whole suite, some nine minutes on two idle cores"
	@$(PYTEST) -n auto --dist worksteal

attack: $(VENV)/.dev ## all of the attack suite: kills, full disks, hostile programs, servers, configs, texts and folders
	@echo "attack: all of it, 6 minutes and more on two cores"
	@$(PYTEST) tests/attacks -m "attack or not attack" -n auto --dist worksteal

mutants: $(VENV)/.dev ## take every defence away in turn; each time a named test must fail
	@$(BIN)/python tests/mutants/mutate.py

lint: $(VENV)/.dev ## check format, style and types
	@echo "lint: format, style and types, about a minute"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

docs: $(VENV)/.docs ## build the documentation into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q
	@echo "docs: open site/index.html"

wheel: ## build dist/ as it is published, adapters and laboratory beside it; check it, and run the wheel in an environment with nothing else
	@rm -rf dist build/empty build/tools
	@$(PYTHON) -m venv build/tools
	@build/tools/bin/python -m pip install -qq -c constraints.txt build twine
	@build/tools/bin/python -m build -o dist > build/wheel.log || { cat build/wheel.log; exit 1; }
	@for one in experts lab; do build/tools/bin/python -m build --wheel -o dist $$one >> build/wheel.log || { cat build/wheel.log; exit 1; }; done
	@build/tools/bin/twine check --strict dist/*
	@$(PYTHON) -m venv build/empty
	@build/empty/bin/python -m pip install -qq --no-deps dist/nsed_torch-*.whl
	@cd build && empty/bin/nsed --version && empty/bin/nsed --help > /dev/null

bench: $(VENV)/.lab ## measure the engine on this machine
	@echo "bench: measures the engine, about an hour on two cores; needs them idle"
	@$(BIN)/python -m bench

results: $(VENV)/.results ## run all experiments of lab/pages/results.md, hours; goes on where it stopped (jobs=2)
	@echo "results: hours on two cores; stop it at any time, the same command goes on"
	@$(MAKE) -f lab/Makefile "-j$$jobs" PYTHON=$(BIN)/python experts

labels: $(VENV)/.demo $(VENV)/.lab ## repeat the main table of lab/pages/labels.md with the adapters that ship, about half an hour on two cores; goes on where it stopped (jobs=2)
	@echo "labels: about half an hour on two cores; stop it at any time, the same command goes on"
	@$(MAKE) -f lab/Makefile "-j$$jobs" PYTHON=$(BIN)/python labels

recorded: $(VENV)/.results ## write lab/pages/recorded.md from recorded answers below data=DIR, an hour; goes on where it stopped (jobs=2)
	@echo "recorded: about an hour on two cores; stop it at any time, the same command goes on"
	@DATA="$$data" $(MAKE) -f lab/Makefile "-j$$jobs" PYTHON=$(BIN)/python recorded

check-results: $(VENV)/.lab ## work out the numbers of pages anew from lab/data, without a model, in under two minutes
	@$(BIN)/python -m nsed_lab.studies.recompute

clean: ## remove .venv, builds and caches; run folders stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
	find nsed_torch bench lab tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.core: pyproject.toml constraints.txt
	$(python)
	@echo "setup: installing nsed_torch into $(VENV), once, one to ten minutes depending on the network"
	@$(PYTHON) -m venv $(VENV)
	$(call install,-e .)
	@touch $@

$(VENV)/.lab: lab/pyproject.toml $(VENV)/.gym
	$(call install,--no-deps -e lab)
	@touch $@

$(VENV)/.demo: experts/pyproject.toml $(VENV)/.core
	$(call install,./experts)
	@touch $@

$(VENV)/.gym: pyproject.toml constraints.txt $(VENV)/.core
	$(call install,-e '.[gym]')
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt $(VENV)/.core
	$(call install,-e '.[docs]')
	@touch $@

$(VENV)/.results: pyproject.toml constraints.txt $(VENV)/.core
	$(call install,-e '.[gym$(,)report$(,)recorded]')
	$(call install,--no-deps -e lab)
	@touch $@

# Compiled are the modules that tests import, when they do: of 24,000 that come along, a tenth.
$(VENV)/.dev: pyproject.toml lab/pyproject.toml constraints.txt
	$(python)
	@echo "setup: installing nsed_torch with test and lint tools into $(VENV), once, one to ten minutes"
	@$(PYTHON) -m venv $(VENV)
	$(call install,--no-compile -e '.[dev$(,)bench$(,)recorded$(,)conductor$(,)endpoint]')
	$(call install,--no-deps -e lab)
	@touch $(VENV)/.core $@
