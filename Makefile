# Every target sets up what it needs in .venv; nothing has to be installed first but Python 3.11 to 3.13 and make.

STACK ?= gcp-dev
FRESH ?=
TESTS ?= tests

VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := $(shell sed -n 's/^  "uv==\(.*\)",$$/\1/p' pyproject.toml)
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)

# Behind a company's proxy only the system's store knows the certificates; uv's own is for machines without one.
CA_STORES := /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem
export UV_SYSTEM_CERTS ?= $(if $(wildcard $(CA_STORES)),true,false)

.DEFAULT_GOAL := help
.PHONY: help setup rehearse test test-fast lint format bench lock clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/uv:
	@test -n "$(PYTHON)" || { echo "Slipway needs Python 3.11 to 3.13, and there is no python3 on PATH. Name one: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 14) or sys.exit(f"Slipway needs Python 3.11 to 3.13; $(PYTHON) is {v[0]}.{v[1]}. Name another one: make PYTHON=python3.11 …")'
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# The stamps keep a second call fast; an interrupted install leaves none and is taken up again.
$(VENV)/.runtime: requirements.txt | $(BIN)/uv
	@echo "Installing what requirements.txt pins into $(VENV)"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt | $(BIN)/uv
	@echo "Installing what requirements-dev.txt pins into $(VENV)"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements-dev.txt
	@touch $@ $(VENV)/.runtime

setup: $(VENV)/.dev ## Install everything, tests and linters included, into .venv

rehearse: $(VENV)/.runtime ## Run a stack here, on the CPU [STACK=gcp-dev] [FRESH=1]
	@$(BIN)/python -m stacks.rehearsal --stack $(STACK) $(if $(FRESH),--fresh)

test: $(VENV)/.dev ## Run every test [TESTS=tests/…]
	@$(BIN)/python -m pytest -n 2 $(TESTS)

test-fast: $(VENV)/.dev ## Run all but the slow tests
	@$(BIN)/python -m pytest -n 2 -m "not slow" $(TESTS)

lint: $(VENV)/.dev ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright

format: $(VENV)/.dev ## Rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev ## Time the tutorial's training loop and ours side by side
	@$(BIN)/python -m benchmarks.training

lock: $(BIN)/uv ## Compile the requirements files from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command "make lock" pyproject.toml -c constraints.txt -o requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command "make lock" --group dev pyproject.toml -c requirements.txt -o requirements-dev.txt

clean: ## Delete what rehearsals and tests left; keeps .venv
	@rm -rf build .pytest_cache .ruff_cache .hypothesis
