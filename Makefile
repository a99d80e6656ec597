# `make demo` and `make test` set up all they need, each on its own. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SEEDS ?= 1000
SOAK_SEEDS ?= 10000
ARGS ?=
JOBS ?= 2
# Integration tests wait more than they compute.
INTEGRATION_JOBS ?= 4
ROOM ?=
MODEL ?= quorum
BOUNDS_quorum := --late 0 --epochs 1 --values 1 --losses 0
BOUNDS_replication := --values 1 --cuts 1 --fences 0 --lags 0
# A file's tests share what their fixtures started, so that a file stays in one process.
PYTEST = $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# $(call tests,KIND,ALL,COMMAND): runs COMMAND on ALL, or on what ROOM has of this kind of test (tests/rooms.py).
tests = $(if $(ROOM),\
	chosen=$$($(BIN)/python -m tests.rooms $(ROOM) $(1)); \
	if [[ -n $$chosen ]]; then $(3) $$chosen $(ARGS); else echo "$(ROOM) has no $(1) tests"; fi,\
	$(3) $(2) $(ARGS))

.PHONY: help env peers lint format test test-unit test-simulation test-integration test-containers demo simulate model mutants bench soak docs lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- Environment: .venv holds what the lock files name, and the project as an editable install ---------------------

env: .venv/installed  ## the Python environment, by hash-checked lock files

.venv/dependencies: requirements/build.lock requirements/dev.lock
	@PYTHON=$(PYTHON) .ci/ensure venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "isthmus: Python 3.11 or later is needed, this is " + sys.version.split()[0])'
	@echo "isthmus: making the Python environment in .venv"
	@[[ -x $(BIN)/python ]] || $(PYTHON) -m venv .venv
	@$(PIP) install --require-hashes -r requirements/build.lock
	@$(PIP) install --require-hashes --no-build-isolation -r requirements/dev.lock
	@touch $@

# The compiled modules are built in place. One that an older build left must not hide a failed compiler.
MODULES := $(shell sed -n 's|^    "\(.*/_[a-z_]*\)",$$|\1|p' setup.py)
.venv/installed: .venv/dependencies pyproject.toml setup.py isthmus/compiled.py $(MODULES:=.py)
	@rm -f $(MODULES:=.*.so)
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@compgen -G 'protocol/_records.*.so' >/dev/null || \
		echo "isthmus: warning: no working C compiler or no Python headers: what setup.py names as MODULES runs as plain Python (slower, all else the same)" >&2
	@touch $@

peers:  ## what the outside peers of the integration tests need
	@.ci/ensure jdk maven kcat

# --- Checks ---------------------------------------------------------------------------------------------------------

lint: env  ## ruff, mypy, pyright, the rules of architecture, and that the reference pages are what the code says
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/python -m tests.architecture
	$(BIN)/python -m docs.generate --check

format: env  ## rewrite as `make lint` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: test-unit test-simulation test-integration  ## all tests, or a room's: make test ROOM=mirror (tests/README.md)

test-unit: env  ## the fast tests: no network, no sleep
	@$(call tests,unit,tests --ignore tests/simulation,$(PYTEST))

test-simulation: env  ## whole clusters on simulated time: 200 seeds of most scenarios, and the planted bugs
	@$(call tests,simulation,tests/simulation,$(BIN)/pytest)

test-integration: JOBS := $(INTEGRATION_JOBS)
test-integration: env peers  ## real processes, real clients, stock Kafka
	@$(call tests,integration,integration_tests,$(PYTEST))

test-containers: env  ## the image and whole topologies in Docker; installs and starts what it needs, where it may
	@.ci/ensure kcat docker compose
	@.ci/ensure debootstrap || echo "isthmus: debootstrap is needed only where no registry of images can be reached" >&2
	@trap '.ci/engine stop' EXIT; \
	$(BIN)/isthmus image build; \
	$(BIN)/pytest integration_tests/containers -m 'containers and not soak' $(ARGS)

simulate: env  ## more seeds of the simulated cluster: make simulate SEEDS=10000
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

model: env  ## all histories of a small quorum, or MODEL=replication; ARGS='--values 2': see tests/core_broker/*/model.py
	$(BIN)/python -m tests.core_broker.$(subst quorum,cluster.raft,$(MODEL)).model $(or $(ARGS),$(BOUNDS_$(MODEL)))

mutants: env  ## plants bugs, one at a time, and checks that a test sees each: make mutants ARGS=client_leftovers
	$(BIN)/python -m tests.mutants $(ARGS)

soak: env peers  ## 10,000 simulated clusters, 100 histories of real ones; kill tests on all flights; other people's suites
	$(BIN)/python -m tests.simulation --scenario cluster --scenario quorum --scenario transactions \
		--scenario consumer-groups --scenario streams --scenario zombies --scenario stream-cluster \
		--scenario stream-growth --scenario stream-pipelines --seeds $(SOAK_SEEDS) --states
	$(BIN)/pytest tests integration_tests -m soak $(ARGS)
	$(BIN)/pytest integration_tests/streams --streams-on kafka $(ARGS)

bench: env peers  ## side by side with stock Kafka: make bench ARGS=list
	$(BIN)/python -m benchmarks $(ARGS)

# --- Use ------------------------------------------------------------------------------------------------------------

demo: env  ## three airports, one aggregate, answers from Spark
	@.ci/ensure java
	$(BIN)/isthmus demo $(ARGS)

docs: env  ## the reference pages that are made from the code
	$(BIN)/python -m docs.generate

# --- Housekeeping ---------------------------------------------------------------------------------------------------

lock:  ## rewrite requirements/*.lock from pyproject.toml (ARGS=--upgrade for newer versions)
	@[[ -x build/lock/bin/uv ]] || { $(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet uv; }
	@export UV_CUSTOM_COMPILE_COMMAND='make lock'; \
	compile="build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url"; \
	$$compile $(ARGS) --extra dev -o requirements/dev.lock pyproject.toml; \
	$$compile $(ARGS) -c requirements/dev.lock -o requirements/build.lock requirements/build.in; \
	$$compile $(ARGS) --no-deps -c requirements/dev.lock -o requirements/suites.lock requirements/suites.in; \
	for each in faust quix bytewax; do $$compile $(ARGS) -o requirements/$$each.lock requirements/$$each.in; done; \
	for_image="$${compile/--universal/--python-platform linux} $(ARGS) -c requirements/dev.lock --extra console --extra streams"; \
	$$for_image -o requirements/image.lock pyproject.toml; \
	$$for_image --extra spark -o requirements/image-spark.lock pyproject.toml

clean:  ## remove the environment and all that was built
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis $(MODULES:=.*.so) $(MODULES:=.pxd)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
