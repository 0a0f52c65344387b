# Everything below needs python3 (3.11 or newer) with its venv module; `make test` also needs the
# servers that .ci/run installs. PYTHON=… picks another interpreter.
PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet

.DEFAULT_GOAL := help
.PHONY: help demo exporter-demo test check bench corpus accuracy generate alerts pictures mutants clean

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/installed  ## set up what is missing and triage a recorded incident
	@$(BIN)/diag demo

exporter-demo: .venv/installed  ## serve a page of made-up GPUs on 127.0.0.1:9877 until interrupted
	@$(BIN)/diag-exporter demo

test: check  ## set up what is missing, check statically, run every test
	@$(BIN)/python -m pytest -q

check: .venv/installed-dev  ## the static part of `make test`
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo 2>/dev/null >.venv/lint-imports.out || { cat .venv/lint-imports.out; exit 1; }
	@$(BIN)/codespell

bench: .venv/installed-dev  ## measure CPU time and memory of triage and of the exporter
	@$(BIN)/python -m bench

corpus: .venv/installed-dev  ## make every case of the accuracy corpus again and check it against the manifest
	@$(BIN)/python -m bench.corpus

accuracy: .venv/installed-bench  ## judge the whole corpus and rewrite docs/accuracy.md (most of an hour)
	@$(BIN)/diag bench test shifted recorded reconstructed --jobs 2 --write docs/accuracy.md

generate: .venv/installed-dev  ## rewrite the generated files (rules and their tests, dashboards, runbooks' blocks, incidents, docs)
	@$(BIN)/python -m diag.assets.generate
	@$(BIN)/python -m dashboards.src
	@$(BIN)/python -m tests.rules.generated
	@$(BIN)/python -m diag_exporter.reference docs/exporter.md

alerts: .venv/installed-dev  ## replay every incident against the rules and rewrite docs/alerts.md (minutes)
	@$(BIN)/python -m tests.rules.matrix

pictures: .venv/installed-dev  ## draw the dashboards (rewrites docs/dashboards.md), the report and the live view
	@$(BIN)/python -m dashboards.src.pictures
	@$(BIN)/python -m bench.pictures

mutants: .venv/installed-dev  ## break every rule and see whether its tests notice (minutes)
	@$(BIN)/python -m tests.rules.mutants

clean:  ## remove the environment and every cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "llm-diag needs Python 3.11 or newer; run make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv
	@$(PIP) install --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	@$(PIP) install --editable '.[dev]'
	@touch $@

.venv/installed-bench: .venv/installed-dev
	@$(PIP) install --editable '.[bench]'
	@touch $@
