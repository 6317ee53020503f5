# Every target sets up what it needs in .venv; nothing has to be installed first but Python 3.11 to 3.13 and make.

TESTS ?= tests

comma := ,

# What may be set, on the command line or in the environment. Recipes take these as variables of the shell ("$$STACK"),
# so their values are words and nothing else: make would expand a `$(shell …)` in them wherever it expands the variable,
# and where it exports one of the command line.
OPTIONS := STACK KEY FRESH FOR BENCHMARK TESTS BASE FORMAT FAIL_ON OUTPUT \
	PIPELINE CLOUD USES REGION GPU MANIFEST NAME CODE \
	STEP APP FOLLOW ONCE ATTEMPTS KUBECONFIG_FILE KUBE_CONTEXT REHEARSAL
TOOLS := VENV BIN PYTHON SHELL UV_SYSTEM_CERTS
SWITCHES := FRESH BENCHMARK FOLLOW ONCE ATTEMPTS REHEARSAL

# What deletes or overwrites is meant for one command, and some systems set NAME for all of them.
$(foreach option,FRESH NAME,$(if $(filter command,$(origin $(option))),,$(eval override $(option) :=)))
$(foreach option,$(OPTIONS),$(if $(filter undefined,$(origin $(option))),,\
	$(eval override $(option) := $$(value $(option)))$(eval export $(option))))

# A switch is `1` from here on where it is on, and else empty.
$(foreach switch,$(SWITCHES),$(if $(filter-out 1 true yes 0 false no,$($(switch)))$(word 2,$($(switch))),\
	$(error $(switch) is `$($(switch))`: write 1, true or yes to switch it on, and 0, false, no or nothing to switch it off)))
$(foreach switch,$(SWITCHES),$(eval override $(switch) := $(if $(filter 1 true yes,$($(switch))),1)))

# What is nearest to the name $(1) among $(2), as a question. Both are quoted: names come from the command line.
QUOTE = '$(subst ','\'',$(1))'
NEAR = $(shell python3 -c 'import difflib, sys; \
	print(*[f"; did you mean `{word}`?" for word in difflib.get_close_matches(sys.argv[1], sys.argv[2].split(), 1)] or \
	[f"; did you mean `{word}`?" for word in sys.argv[2].split() if word == sys.argv[1].upper()])' \
	$(call QUOTE,$(1)) $(call QUOTE,$(2)) 2>/dev/null)

# A mistyped variable or a stack as a goal would else be noticed after the wrong stack was rehearsed, or never.
given := $(foreach variable,$(.VARIABLES),$(if $(filter command,$(origin $(variable))),$(variable)))
unknown := $(filter-out $(OPTIONS) $(TOOLS) MAKEFLAGS MAKEOVERRIDES -*-command-variables-*-,$(given))
$(foreach variable,$(unknown),$(error there is no variable `$(variable)`$(call NEAR,$(variable),$(OPTIONS)); known here: $(OPTIONS)))

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)

# Behind a company's proxy only the system's store knows the certificates; uv's own is for machines without one.
CA_STORES := /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem
export UV_SYSTEM_CERTS ?= $(if $(wildcard $(CA_STORES)),true,false)

.DEFAULT_GOAL := help
TARGETS := help setup new import rehearse demo preview check explain doctor show watch logs shell open run stop pin-images \
	refresh-prices \
	test test-all test-long browser lint format bench bench-evaluation \
	lock docs package clean \
	ci-preview ci-verdict ci-comment ci-actionlint ci-deploy-preview ci-deploy-up \
	ci-release-check ci-release-try ci-release-upload ci-release-publish
.PHONY: $(TARGETS)

ifneq (show,$(firstword $(MAKECMDGOALS)))
$(foreach goal,$(filter-out $(TARGETS) $(VENV)/% $(BIN)/%,$(MAKECMDGOALS)),$(error there is no target `$(goal)`$(if \
	$(wildcard stacks/Pulumi.$(goal).yaml),$(comma) but a stack: make $(firstword $(MAKECMDGOALS)) STACK=$(goal),$(call NEAR,$(goal),$(TARGETS)))))
endif

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-18s %s\n", $$1, $$2}'

$(BIN)/uv:
	@test -n "$(PYTHON)" || { echo "Slipway needs Python 3.11 to 3.13, and there is no python3 on PATH. Name one: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 14) or sys.exit(f"Slipway needs Python 3.11 to 3.13; $(PYTHON) is {v[0]}.{v[1]}. Name another one: make PYTHON=python3.11 …")'
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt >$(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt

# The stamps keep a second call fast; an interrupted install leaves none and is taken up again.
#
# What a rehearsal imports is compiled here, by importing it once: pods write no bytecode, nor does anyone who set
# PYTHONDONTWRITEBYTECODE, and most of what is installed is never imported.
define INSTALL
@echo "Installing what $< pins into $(VENV), once: 3 GB, of which TensorFlow has 1.3 GB"
@$(BIN)/python -m slipway.command.progress "Installing packages" \
	$(BIN)/uv pip install --python $(BIN)/python --require-hashes -r $<
@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m slipway.command.progress "Compiling what a rehearsal imports" sh -c '\
$(BIN)/python -c "import tensorflow, keras, sklearn.datasets, PIL.Image" >/dev/null 2>&1 & \
$(BIN)/python -c "import slipway.rehearse.cli, slipway.rehearse.output.report; \
from importlib.util import find_spec; from slipway.infra.clouds.registry import CLOUDS; \
[__import__(part) for cloud in CLOUDS for name in (\"platforms\", \"emulator\") \
if find_spec(part := f\"slipway.infra.clouds.{cloud}.{name}\")]"; wait'
endef

$(VENV)/.runtime: requirements.txt | $(BIN)/uv
	$(INSTALL)
	@touch $@

$(VENV)/.dev: requirements-dev.txt | $(BIN)/uv
	$(INSTALL)
	@touch $@ $(VENV)/.runtime

setup: $(VENV)/.dev ## Install everything, tests and linters included, into .venv

new: $(VENV)/.runtime ## Write a pipeline, PIPELINE=mine, or a stack, STACK=mine CLOUD=gcp [USES=…] [REGION=…] [GPU=…]
	@$(BIN)/python -m slipway new --example=mnist $${PIPELINE:+--pipeline="$$PIPELINE"} $${STACK:+--stack="$$STACK"} \
		$${CLOUD:+--cloud="$$CLOUD"} $${USES:+--uses="$$USES"} $${REGION:+--region="$$REGION"} $${GPU:+--gpu="$$GPU"}

import: $(VENV)/.runtime ## Write a pipeline from a TFJob, a Job and the like, MANIFEST=tfjob.yaml [NAME=mine] [CODE=its/folder]
	@$(BIN)/python -m slipway import $${NAME:+--name="$$NAME"} $${CODE:+--code="$$CODE"} -- "$$MANIFEST"

rehearse: $(VENV)/.runtime ## Run a stack here, on the CPU [STACK=gcp-dev] [FRESH=1] [BENCHMARK=1]
	@$(BIN)/python -m slipway rehearse --stack "$${STACK:-gcp-dev}" $${FRESH:+--fresh} $${BENCHMARK:+--benchmark} \
		$${FORMAT:+--format "$$FORMAT"}

demo: $(VENV)/.runtime ## Rehearse a stack, then keep its page and other apps here until Ctrl-C [STACK=demo] [FRESH=1] [FOR=60]
	@$(BIN)/python -m slipway demo --stack "$${STACK:-demo}" $${FRESH:+--fresh} $${FOR:+--for "$$FOR"} \
		$${BENCHMARK:+--benchmark}

# make itself exits 2 whenever a target fails, so the preview's own exit code is left in build/preview/status:
# 0 clean, 1 findings, 2 not evaluated.
define previewing
@mkdir -p build/preview; rm -f build/preview/status; \
set -f; IFS=' ,'; for stack in $$STACK; do set -- "$$@" --stack "$$stack"; done; unset IFS; \
$(BIN)/python -m slipway $(1) "$$@" $(2) $${FORMAT:+--format "$$FORMAT"} $${OUTPUT:+--output "$$OUTPUT"} \
	$${FAIL_ON:+--fail-on "$$FAIL_ON"}; status=$$?; echo $$status >build/preview/status; exit $$status
endef

preview: $(VENV)/.runtime ## Say what a change does to each stack [STACK=…] [BASE=origin/main] [FORMAT=markdown] …
	$(call previewing,preview,$${BASE:+--base "$$BASE"})

check: $(VENV)/.runtime ## Hold every stack to the policies [STACK=gcp-dev] [FAIL_ON=error]
	$(call previewing,check,)

explain: $(VENV)/.runtime ## Say what a key of a stack file or of pipeline.yaml means: KEY=clusters.pools.spot [FORMAT=json]
	@$(BIN)/python -m slipway explain $${KEY:+"$$KEY"} $${FORMAT:+--format "$$FORMAT"}

doctor: $(VENV)/.runtime ## Say what is missing before the first `pulumi up`, and what mends it [STACK=…] [FORMAT=json]
	@set -f; IFS=' ,'; for stack in $$STACK; do set -- "$$@" --stack "$$stack"; done; unset IFS; \
	$(BIN)/python -m slipway doctor "$$@" $${FORMAT:+--format "$$FORMAT"}

# `make show STACK=local predictions`: the words after `show` are what to show, and no targets.
ifeq (show,$(firstword $(MAKECMDGOALS)))
SHOWN := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(SHOWN)
$(SHOWN):
	@:
endif

show: $(VENV)/.runtime ## Show results of a stack that is up: make show STACK=local predictions, runs, compare … [REHEARSAL=1]
	@$(BIN)/python -m slipway show $${STACK:+--stack "$$STACK"} $${REHEARSAL:+--rehearsal} $${FORMAT:+--format "$$FORMAT"} $(foreach word,$(SHOWN),'$(subst ','\'',$(word))')

# A step that failed, and a stack that cannot be read, are exit codes of their own, which make turns into 2.
watch: $(VENV)/.runtime ## Show what the Jobs of a stack do, and why they wait: STACK=gcp-dev [ONCE=1] [KUBECONFIG_FILE=…]
	@$(BIN)/python -m slipway watch $${STACK:+--stack="$$STACK"} $${ONCE:+--once} $${FORMAT:+--format "$$FORMAT"} \
		$${KUBECONFIG_FILE:+--kubeconfig="$$KUBECONFIG_FILE"} $${KUBE_CONTEXT:+--context="$$KUBE_CONTEXT"}

run: $(VENV)/.runtime ## Go on with a run that `pulumi up` does not wait for: STACK=gcp-dev [KUBECONFIG_FILE=…]
	@$(BIN)/python -m slipway run $${STACK:+--stack="$$STACK"} \
		$${KUBECONFIG_FILE:+--kubeconfig="$$KUBECONFIG_FILE"} $${KUBE_CONTEXT:+--context="$$KUBE_CONTEXT"}

stop: $(VENV)/.runtime ## Stop such a run, or one step; what its pods saved stays: STACK=gcp-dev [STEP=train] [KUBECONFIG_FILE=…]
	@$(BIN)/python -m slipway stop $${STEP:+"$$STEP"} $${STACK:+--stack="$$STACK"} \
		$${KUBECONFIG_FILE:+--kubeconfig="$$KUBECONFIG_FILE"} $${KUBE_CONTEXT:+--context="$$KUBE_CONTEXT"}

logs: $(VENV)/.runtime ## Print the logs of a step: STACK=gcp-dev STEP=train [FOLLOW=1] [ATTEMPTS=1]
	@$(BIN)/python -m slipway logs $${STACK:+--stack="$$STACK"} $${STEP:+--step="$$STEP"} $${FOLLOW:+--follow} \
		$${ATTEMPTS:+--attempts} $${KUBECONFIG_FILE:+--kubeconfig="$$KUBECONFIG_FILE"} \
		$${KUBE_CONTEXT:+--context="$$KUBE_CONTEXT"}

shell: $(VENV)/.runtime ## Open a shell in the container of a step that runs: STACK=gcp-dev STEP=train [KUBECONFIG_FILE=…]
	@$(BIN)/python -m slipway shell "$$STEP" $${STACK:+--stack="$$STACK"} \
		$${KUBECONFIG_FILE:+--kubeconfig="$$KUBECONFIG_FILE"} $${KUBE_CONTEXT:+--context="$$KUBE_CONTEXT"}

open: $(VENV)/.runtime ## Reach an app of a stack that is up from this machine: STACK=gcp-dev APP=page [KUBECONFIG_FILE=…]
	@$(BIN)/python -m slipway open $${APP:+"$$APP"} $${STACK:+--stack="$$STACK"} \
		$${KUBECONFIG_FILE:+--kubeconfig="$$KUBECONFIG_FILE"} $${KUBE_CONTEXT:+--context="$$KUBE_CONTEXT"}

pin-images: $(VENV)/.runtime ## Name the default images by the digests that the registry has for them
	@$(BIN)/python -m slipway pin-images

refresh-prices: $(VENV)/.runtime ## Write today's prices and zones of accelerators into their data files
	@$(BIN)/python -m slipway.command.refresh_prices

# Tests start hundreds of processes, each of which would else compile the project anew under PYTHONDONTWRITEBYTECODE.
# The slow ones wait more than they compute, so three workers keep two cores busy.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --dist loadgroup

test: $(VENV)/.dev ## Run the quick tests, and one rehearsal with real training: 4 minutes [TESTS=tests/…]
	@$(PYTEST) -n 2 -m "not slow and not long" $$TESTS

test-all: $(VENV)/.dev ## Run these and the slow tests: 15 minutes [TESTS=tests/…]
	@$(PYTEST) -n 3 -m "not long" $$TESTS

test-long: $(VENV)/.dev ## Run the tests that `make test-all` leaves out: 20 minutes [TESTS=tests/…]
	@$(PYTEST) -n 3 -m long $$TESTS

browser: ## Install Chromium for the tests of the page, which are skipped without it
	@for browser in chromium chromium-browser google-chrome-stable google-chrome; do \
		command -v $$browser >/dev/null && exit 0; \
	done; \
	command -v apt-get >/dev/null || { echo "There is no Chromium on PATH, and no apt-get to install it" >&2; exit 1; }; \
	if [ "$$(id -u)" = 0 ]; then as=; else as=sudo; fi; \
	$$as apt-get update -qq && $$as apt-get install -yqq --no-install-recommends chromium fonts-dejavu-core

lint: $(VENV)/.dev ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright

format: $(VENV)/.dev ## Rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev ## Time the tutorial's training loop and ours side by side
	@$(BIN)/python -m benchmarks.training

bench-evaluation: $(VENV)/.dev ## Time the evaluation of stacks with 10, 100 and 1,000 pipelines
	@$(BIN)/python -m benchmarks.evaluation

# The steps of .github/workflows; docs/ci.md says what each needs. Those that hold a token run on
# the standard library, so they install nothing first.
ANY_PYTHON := $(if $(PYTHON),$(PYTHON),python3) -m

ci-preview: $(VENV)/.runtime
	@$(BIN)/python -m ci.preview

ci-verdict:
	@$(ANY_PYTHON) ci.preview verdict

ci-comment:
	@$(ANY_PYTHON) ci.comment

ci-actionlint:
	@GOBIN=$(CURDIR)/build/ci/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

ci-deploy-preview: $(VENV)/.dev
	@$(BIN)/python -m ci.deploy plan

ci-deploy-up: $(VENV)/.dev
	@$(BIN)/python -m ci.deploy apply

ci-release-check:
	@$(ANY_PYTHON) ci.release check

ci-release-try: $(VENV)/.dev
	@$(BIN)/python -m ci.release try

ci-release-upload: $(BIN)/uv
	@$(BIN)/uv publish --trusted-publishing always dist/*.whl dist/*.tar.gz

ci-release-publish:
	@$(ANY_PYTHON) ci.release publish

# What a lock file pins already stays at its version where requirements.in allows it.
ifdef PIPELINE
lock: $(BIN)/uv
	@packages="workloads/$$PIPELINE/requirements.in"; test -f "$$packages" || { \
		echo "There is no $$packages: write into it what the pipeline's programs import, a package on each line" >&2; exit 1; }
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock PIPELINE=$$PIPELINE" "workloads/$$PIPELINE/requirements.in" -o "workloads/$$PIPELINE/requirements.txt"
else
lock: $(BIN)/uv ## Compile the lock file of a pipeline, PIPELINE=mine; without one, those of this project
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command "make lock" --all-extras pyproject.toml -c constraints.txt -o requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" ci/sbom/requirements.in -o ci/sbom/requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command "make lock" --all-extras --group dev pyproject.toml -c requirements.txt -o requirements-dev.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command "make lock" --group docs -o requirements-docs.txt
endif

docs: $(BIN)/uv ## Build the pages as a site, with search, into build/docs/site; fails at a dead link
	@$(BIN)/uv run --quiet --isolated --no-project --python $(BIN)/python --with-requirements requirements-docs.txt \
		python -m slipway.command.site

# The same commit and tag give the same bytes: hatchling orders the files and gives them all one date.
package: $(VENV)/.dev ## Build the package `slipway` into dist/, as a wheel and a source distribution, and the template of a project
	@rm -rf dist; $(BIN)/uv build --quiet --python $(BIN)/python --no-build-isolation --out-dir dist
	@$(BIN)/python -m slipway.command.new.publishing dist

clean: ## Delete what rehearsals and tests left; keeps .venv
	@rm -rf build .pytest_cache .ruff_cache .hypothesis
