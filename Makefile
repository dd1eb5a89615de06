# `make` lists the commands. Each sets up what it needs by itself, in .venv, once.
#
#   make test PYTHON=python3.12     another Python to set up with
#   make test ARGS="-k wal -x"      arguments for the tool behind a command
#   make test LANES=0               tests one after the other, in one process

PYTHON ?=
VENV   ?= .venv
ARGS   ?=
LANES  ?= 4

BIN    := $(VENV)/bin
# The names of stamps hold a checksum: set-up runs again when, and only when, these files change.
SUM    := $(shell cat setup.cfg pyproject.toml | cksum | tr ' ' '-')
STAMP  := $(VENV)/.set-up-$(SUM)
# What a command needs beside the package: an extra of setup.cfg, installed when it is first needed.
with    = $(VENV)/.with-$(1)-$(SUM)
# uv takes half of pip's time; pip is there where uv does not reach what pip is configured for.
install = UV_LINK_MODE=hardlink $(BIN)/python -m uv pip install --quiet --python $(BIN)/python $(1) \
    || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(1)
# Where an index does not say how long a file holds, uv keeps PySpark's 1.3 GB once more each time.
prune   = $(BIN)/python -m uv cache prune --quiet 2>/dev/null || true
# A file's tests run in one process, in the order of `tests/conftest.py`.
# When one of them dies the run ends: pytest-xdist 3.8 waits for ever for what that one had left.
PYTEST  = $(BIN)/python -m pytest -n $(LANES) --dist loadfile --no-loadscope-reorder \
    --max-worker-restart 0
# Spark's Python workers must be the Python that the driver is.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
# Many processes import the same modules: each would compile them again if that were left out.
export PYTHONDONTWRITEBYTECODE :=

SHELL  := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup java redis prometheus s3 azurite sources services test test-fast test-versions conformance soak soak-restarts fuzz lint demo bench wheel package-check docs browser soak-queries site clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(call with,dev) java ## make .venv with everything that tests and checks need

$(STAMP):
	@fits='import sys, venv; sys.exit(sys.version_info < (3, 10))'; \
	python='$(PYTHON)'; \
	for candidate in $${python:-python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do \
	    if "$$candidate" -c "$$fits" 2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	    echo "No Python 3.10 or later found (tried: $${python:-python3, python3.14 to python3.10})." >&2; \
	    echo "Install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip' 2>/dev/null; then \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	        echo "Installing python3-venv"; \
	        apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-venv >/dev/null; \
	    else \
	        echo "$$found cannot make environments (no ensurepip). Install its venv package," >&2; \
	        echo "on Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; \
	    fi; \
	fi; \
	echo "Setting up $(VENV) with $$("$$found" --version), this downloads PySpark the first time"; \
	"$$found" -m venv --clear $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile uv || true; \
	$(call install,-e .); \
	$(prune); \
	touch $@

# One at a time, as make may run several commands side by side.
$(VENV)/.with-%-$(SUM): $(STAMP)
	@exec 9<$(STAMP); flock 9; $(call install,-e '.[$*]'); $(prune); touch $@

java:
	@version() { "$$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }; \
	for candidate in "$${JAVA_HOME:+$$JAVA_HOME/bin/java}" java; do \
	    if [ -n "$$candidate" ] && command -v "$$candidate" >/dev/null; then \
	        found=$$(version "$$candidate"); \
	        if [ "$${found:-0}" -ge 17 ]; then exit 0; fi; \
	        echo "Java $${found:-of unknown version} at $$(command -v "$$candidate") is too old for Spark 4." >&2; \
	        if [ "$$candidate" != java ]; then break; fi; \
	    fi; \
	done; \
	if [ "$$(id -u)" = 0 ] && [ -z "$${JAVA_HOME:-}" ] && command -v apt-get >/dev/null; then \
	    echo "Installing a Java 17 runtime"; \
	    apt-get -qq update; \
	    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do \
	        if apt-get -qq install -y --no-install-recommends "$$package" >/dev/null 2>&1; then exit 0; fi; \
	    done; \
	fi; \
	echo "Spark 4 needs Java 17 or later. Install it and put it on the PATH or set JAVA_HOME," >&2; \
	echo "on Debian and Ubuntu: sudo apt-get install openjdk-17-jre-headless" >&2; exit 1

redis:
	@for server in redis-server valkey-server; do \
	    if command -v "$$server" >/dev/null; then exit 0; fi; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing a Redis server"; \
	    apt-get -qq update; \
	    for package in redis-server valkey-server; do \
	        if apt-get -qq install -y --no-install-recommends "$$package" >/dev/null 2>&1; then exit 0; fi; \
	    done; \
	fi; \
	echo "No redis-server or valkey-server on the PATH: the tests of shared rates are skipped." >&2; \
	echo "On Debian and Ubuntu: sudo apt-get install redis-server" >&2

# Builds for two minutes, once; without it the tests that need a store which keeps its word are skipped.
VERSITYGW := v1.8.0
S3 = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/penstock/versitygw-$(VERSITYGW)
s3:
	@if command -v versitygw >/dev/null; then exit 0; fi; \
	mkdir -p "$(S3)"; exec 9>"$(S3)/lock"; flock 9; \
	if [ -x "$(S3)/versitygw" ]; then exit 0; fi; \
	if command -v go >/dev/null; then \
	    echo "Building versitygw, an S3 server (about 2 minutes, 300 MB)"; \
	    if GOBIN="$(S3)/new" timeout 600 nice go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW); \
	    then mv "$(S3)/new/versitygw" "$(S3)/"; exit; fi; \
	fi; \
	echo "No versitygw on the PATH and no go 1.25 to build it: the tests with it are skipped." >&2

azurite: $(STAMP)
	@if command -v azurite-blob >/dev/null || [ -d $(VENV)/azurite/node_modules ]; then exit 0; fi; \
	if command -v npm >/dev/null; then \
	    echo "Installing Azurite, an emulator of Azure Blob Storage (about a minute, 200 MB)"; \
	    npm install --silent --no-audit --no-fund --prefix $(VENV)/azurite azurite@3.37.0; exit; \
	fi; \
	echo "No azurite-blob on the PATH and no npm to install it: the tests with it are skipped." >&2

browser:
	@if command -v chromedriver >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Chromium"; \
	    apt-get -qq update; \
	    if apt-get -qq install -y --no-install-recommends chromium chromium-driver >/dev/null 2>&1; then exit 0; fi; \
	fi; \
	echo "No chromedriver on the PATH: the tests of the page in a browser are skipped." >&2; \
	echo "On Debian and Ubuntu: sudo apt-get install chromium chromium-driver" >&2

prometheus:
	@if command -v prometheus >/dev/null && command -v promtool >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Prometheus"; \
	    apt-get -qq update; \
	    if apt-get -qq install -y --no-install-recommends prometheus >/dev/null 2>&1; then exit 0; fi; \
	fi; \
	echo "No prometheus and promtool on the PATH: the tests with them are skipped." >&2; \
	echo "On Debian and Ubuntu: sudo apt-get install prometheus" >&2

# Of Debian: their packages start a service each, which a test does not need.
SERVERS := mosquitto rabbitmq-server postgresql rsyslog logrotate
sources:
	@missing=(); \
	for package in $(SERVERS); do \
	    if ! dpkg -s "$$package" >/dev/null 2>&1; then missing+=("$$package"); fi; \
	done; \
	if [ "$${#missing[@]}" = 0 ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing $${missing[*]} (about 120 MB, a minute)"; \
	    policy=/usr/sbin/policy-rc.d; \
	    if [ ! -e "$$policy" ]; then \
	        trap 'rm -f "$$policy"' EXIT; \
	        printf '#!/bin/sh\nexit 101\n' >"$$policy"; chmod +x "$$policy"; \
	    fi; \
	    apt-get -qq update; \
	    if DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
	        "$${missing[@]}" >/dev/null; then exit 0; fi; \
	fi; \
	echo "Not installed: $${missing[*]}: the tests of the sources that need them are skipped." >&2

services: $(STAMP) java
	@$(BIN)/python -m tests.services.jvm & trap wait EXIT; \
	$(MAKE) --no-print-directory $(call with,test); \
	$(MAKE) --no-print-directory $(VENV)/.compiled & \
	$(MAKE) --no-print-directory redis browser prometheus sources; \
	$(BIN)/python tests/services/jars.py

# Before lanes begin, which would each compile all tests, with pytest's changes of them.
$(VENV)/.compiled: $(wildcard tests/*.py tests/*/*.py tests/*/*/*.py)
	@$(BIN)/python -m pytest --collect-only -q >/dev/null; touch $@

test: services ## run the tests but those with other servers, in eight minutes on two quiet cores
	@$(PYTEST) -m "not long and not exhaustive" $(ARGS)

.PHONY: test-long test-slow test-all
test-long: services s3 ## run what `make test` leaves out: tests with servers, and those that take long
	@$(PYTEST) -m "long and not exhaustive" $(ARGS)

test-slow: LANES = 3
test-slow: services ## run the tests of `make test` on a machine slowed to a quarter
	@$(BIN)/python -m tests.slow_machine $(PYTEST) -m "not long and not exhaustive" $(ARGS)

test-all: services s3 azurite ## run all tests, with all cases of what has many
	@$(PYTEST) $(ARGS)

test-fast: $(call with,test) java ## run the part of the suite that takes less than two minutes
	@$(PYTEST) -m "not slow and not long and not exhaustive" $(ARGS)

test-versions: java ## run a part of the suite with each PySpark and Python (ARGS=--help)
	@python3 .ci/test_versions.py $(ARGS)

conformance: $(call with,test) java ## run PySpark's own tests of streams (ARGS=python/pyspark/streaming/tests)
	@$(BIN)/python -m tests.streaming.pyspark_suites $(ARGS)

soak: $(call with,test) java ## kill a driver at 200 random moments and check its results (ARGS=--help)
	@$(BIN)/python -m tests.system.soak $(ARGS)

soak-queries: $(call with,test) java ## kill queries of received records 100 times and check what they wrote (ARGS=--help)
	@$(BIN)/python -m tests.sql.kills $(ARGS)

soak-restarts: $(call with,test) java ## run 10,000 random programs with crashes, stops and failures (ARGS=--help)
	@$(BIN)/python -m tests.streaming.restarts.random_runs $(or $(ARGS),10000)

chaos: services ## hurt programs a hundred times in every known way and check their results (ARGS=--help)
	@$(BIN)/python -m tests.system.chaos $(ARGS)

fuzz: $(call with,test) java ## attack all ports for ten minutes (ARGS=--help)
	@$(BIN)/python -m tests.system.fuzz $(ARGS)

.PHONY: mutants
mutants: $(call with,test) java ## look for changes of the code that no test notices (ARGS="--room wal --sample 30")
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: first-hour
first-hour: $(call with,test) java ## play the first hour of a new user in an empty environment (ARGS=--help)
	@$(BIN)/python -m tests.first_hour $(ARGS)

lint: $(call with,dev) ## check style, format, types and what rooms import
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

demo: $(STAMP) java ## run the main job on real input for half a minute (ARGS=--help)
	@$(BIN)/python examples/demo.py $(ARGS)

bench: $(call with,test) $(call with,bench) java ## run the benchmarks beside pyspark.streaming (ARGS=--help)
	@$(BIN)/python -m benchmarks $(ARGS)

wheel: $(STAMP) ## build the wheel into dist/
	@rm -rf build/lib build/bdist.*
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

package-check: $(STAMP) java ## build the wheel and run a receiver from it in an empty environment
	@$(BIN)/python .ci/package_check.py

docs: $(STAMP) ## write docs/settings.md again from the table of settings
	@$(BIN)/python -m penstock.settings._page > docs/settings.md.new
	@mv docs/settings.md.new docs/settings.md

site: $(call with,docs) ## build the documentation site into build/site; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean: ## remove what set-up, builds and tests left
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
