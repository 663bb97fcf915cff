# `make demo` shows the main job, `make test` proves it; both set everything up first.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COUNT ?= 50
MAKEFLAGS += --no-print-directory

.PHONY: help setup engine yaml-language demo test check format golden wheel pins clean \
        proof-faults proof-kill proof-policy proof-idle proof-sizing proof-throughput bench

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@$(BIN)/python -m compileall -q provisioner stacks policies
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

engine: $(VENV)/.installed
	@$(BIN)/gpuprov doctor --get-engine

yaml-language: $(VENV)/.installed
	@$(BIN)/python -m stacks.engine yaml-language

setup: engine ## virtual environment, the three commands, the engine
	@echo "ready: $(BIN)/gpuprov"

demo: setup ## the main job on the sandbox cloud
	$(BIN)/gpuprov up examples/llama-3.1-8b-chat/workload.yaml --yes --cloud sandbox
	$(BIN)/gpuprov status

test: $(VENV)/.installed-dev engine yaml-language ## everything that CI runs
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/.installed-dev ## linters, types, import layers, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

format: $(VENV)/.installed-dev ## rewrite the formatting
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(VENV)/.installed-dev ## renew the expected plans of examples/ and tests/golden/ after a meant change, and show it
	GPUPROV_UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/examples tests/golden -q
	@git --no-pager diff --stat -- examples tests/golden
	@git --no-pager diff -U1 -- tests/golden

wheel: $(VENV)/.installed ## dist/*.whl with the three packages
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

pins: $(VENV)/.installed-dev ## renew constraints.txt from what is installed
	@head -1 constraints.txt > constraints.new
	@$(BIN)/python -m pip freeze --exclude-editable >> constraints.new && mv constraints.new constraints.txt

proof-faults: $(VENV)/.installed-dev ## every step gone wrong in every way; nothing may be doubled, lost or touched
	$(BIN)/python -m tests.proofs.faults --kept build/proof-faults --out docs/proofs/faults.md

proof-kill: $(VENV)/.installed-dev engine ## SIGKILL `up` COUNT times; nothing may be doubled or left
	$(BIN)/python -m tests.proofs.kill --count $(COUNT) --out docs/proofs/kill.md

proof-idle: $(VENV)/.installed-dev ## idle machines end, working ones never do: the corpus of traces, killed watchers
	$(BIN)/python -m tests.proofs.idle --out docs/proofs/idle.md

proof-policy: $(VENV)/.installed-dev engine yaml-language ## the gate: parity, reports, exit codes, maskings, mutants
	$(BIN)/python -m tests.proofs.policy --out docs/proofs/policy.md

proof-sizing: $(VENV)/.installed-dev ## the memory verdict against published measurements, source by source
	$(BIN)/python -m tests.proofs.sizing --out docs/proofs/sizing.md

proof-throughput: $(VENV)/.installed-dev ## predicted rates against published measurements
	$(BIN)/python -m tests.proofs.accuracy speed --out docs/proofs/throughput.md

bench: $(VENV)/.installed-dev engine ## speed, as ratios
	$(BIN)/python -m benchmarks.plan_speed
	$(BIN)/python -m benchmarks.check_speed
	$(BIN)/python -m benchmarks.ranking_speed
	$(BIN)/python -m benchmarks.up_overhead
	$(BIN)/python -m benchmarks.reaper_scale

clean: ## remove what setup and builds made in this folder (the engine's cache stays)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
