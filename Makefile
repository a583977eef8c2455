# Everything a checkout needs. `make help` lists the targets; .ci/run calls only these names.
# Each set of dependencies leaves a stamp in .venv, so a second call installs nothing.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
LOCK_FLAGS ?=
PYTEST_ARGS ?=
SECONDS ?=
EXECUTIONS ?=
FUZZ_ARGS ?=
SPEC ?=
RECORDS ?=
WORKLOAD_ARGS ?=
BASE ?=
MUTANTS_ARGS ?=
BENCH_ARGS ?=
MINUTES ?= 60
SOAK_ARGS ?=
CONFLUENT ?=

# Byte code is kept, whatever the environment says, though not beside the sources: the tests start
# hundreds of processes, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode

PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
INTEROP = $(PYTEST) -m "interop and not long" $(PYTEST_ARGS)
OTHERS := tests/browser tests/mutants tests/spark $(patsubst %,tests/interop/test_%.py, \
	command_lines consumer_group_histories spark_cluster)
PARALLEL := -n $(JOBS) --dist worksteal

CORE := $(VENV)/.stamp-core
DEV := $(VENV)/.stamp-dev
ALL := $(VENV)/.stamp-all
SITE := $(VENV)/.stamp-site
RELEASE := $(VENV)/.stamp-release

# pytest exits with 5 when nothing was collected; that is no failure of a target whose tests are
# still to come.
NONE_IS_FINE = || { code=$$?; [ $$code -eq 5 ] && echo "$(1)" || exit $$code; }

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# --- set-up -----------------------------------------------------------------------------------

$(BIN)/python:
	@python=$$(sh requirements/find-python.sh $(PYTHON)) || exit 1; \
	echo "Creating $(VENV) with $$("$$python" --version) ..."; \
	"$$python" -m venv $(VENV)

$(CORE): pyproject.toml requirements/core.txt | $(BIN)/python
	@echo "Installing the core dependencies and logstore itself ..."
	@rm -rf *.egg-info # a build leaves one here, which hides the entry points of what is installed
	@$(PIP) install --require-hashes -r requirements/core.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@find logstore cleaner bench -name '*.nb[ic]' -delete # kernels compiled by another numba, or under other names
	@touch $@

$(DEV): requirements/dev.txt $(CORE)
	@echo "Installing the development tools ..."
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# Spark comes as a source package: built with the setuptools installed (and hashed) above.
$(ALL): requirements/all.txt $(CORE)
	@echo "Installing the development tools and Spark (about 1 GB, a minute or two) ..."
	@$(PIP) install --require-hashes --no-build-isolation -r requirements/all.txt
	@touch $(DEV) $@

$(SITE): requirements/site.txt $(DEV)
	@$(PIP) install --require-hashes -r requirements/site.txt
	@touch $@

$(RELEASE): requirements/release.txt $(DEV)
	@$(PIP) install --require-hashes -r requirements/release.txt
	@touch $@

.PHONY: help install demo test slow lowest check format lint mypy interop interop-kafka interop-others apps clients golden fuzz soak mutants boundscheck nojit-coverage workload bench bench-full bench-wire docs docs-site pictures messages lock release release-try clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(CORE) ## create .venv with the core dependencies and the logstore command
	@echo "Ready: $(BIN)/logstore --help"

demo: $(CORE) ## install, then run the main job on a small real story
	@$(BIN)/logstore demo

# --- tests ------------------------------------------------------------------------------------

test: $(ALL) ## install development tools and Spark, then run the whole default suite
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS)

slow: $(ALL) ## tests of several seconds each, which the default suite excludes
	@$(PYTEST) $(PARALLEL) -m "slow and not long and not interop" $(PYTEST_ARGS)

check: $(DEV) ## format, lint, types, import rules, prose, then unit, property and meta tests
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted: run make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.prose --check
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) $(wildcard tests/unit tests/property tests/meta)

format: $(DEV) ## rewrite the code in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: $(DEV) ## ruff, the import rules and the limits of prose
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.prose --check

mypy: $(DEV) ## types of logstore and cleaner, strictly
	@$(BIN)/mypy

# The development tools are installed first. Their own dependencies may be older than they declare.
# Two tests do not apply: docs/CLI.md has the help of the newest click, and one snippet needs PySpark.
lowest: LOWEST := $(VENV)/lowest
lowest: export NUMBA_CACHE_DIR := $(CURDIR)/$(LOWEST)/numba
lowest: ## unit, property and command tests with the lowest dependencies that pyproject.toml allows: PYTEST_ARGS
	@$(MAKE) VENV=$(LOWEST) $(LOWEST)/.stamp-dev
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/lowest.txt
	@$(LOWEST)/bin/python -m pytest $(PARALLEL) $(PYTEST_ARGS) tests/unit tests/property tests/cli \
		--deselect tests/cli/test_help.py::test_docs_are_current \
		--deselect tests/cli/test_snippets.py::test_snippets_pass_mypy_strict

# In CI a machine that lacks Kafka's classes or Chromium is a failure; elsewhere the tests skip and say why.
interop: export LOGSTORE_INTEROP_REQUIRED := $(if $(CI),1,$(LOGSTORE_INTEROP_REQUIRED))
interop: $(ALL) ## tests against Kafka's own classes (need a JDK and Maven), in Chromium, the long ones on Spark, and `make slow`
	@rm -f tests/interop/target/results.json
	@$(MAKE) --no-print-directory --jobs=2 --keep-going interop-kafka interop-others slow

interop-kafka: $(ALL)
	@$(INTEROP) tests/interop $(addprefix --ignore=,$(OTHERS))

# The tests with Kafka wait for its brokers most of the time, so these run next to them.
interop-others: $(ALL)
	@mkdir -p build
	@$(INTEROP) $(OTHERS) > build/interop.log 2>&1; status=$$?; cat build/interop.log; exit $$status

apps: $(DEV) ## Streams, Connect, MirrorMaker 2 and Spring on our listener, with kills and restarts; an hour (needs a JDK and Maven)
	@LOGSTORE_INTEROP_REQUIRED=1 $(PYTEST) -m apps $(PYTEST_ARGS) tests/apps

clients: $(DEV) ## confluent-kafka-python's integration tests against our listener: CONFLUENT=checkout
	@test -n "$(CONFLUENT)" || { echo "Say where it is: make clients CONFLUENT=../confluent-kafka-python"; exit 2; }
	@$(BIN)/python -m tests.support.interop.confluent_suite "$(CONFLUENT)"

golden: ## write the golden directories anew into build/golden, to compare (needs a JVM and Maven)
	@rm -rf build/golden
	@bash tests/interop/golden.sh build/golden
	@diff -rq build/golden tests/data/kafka-3.9 | grep -v ': \(dump\|decoders\)$$' || echo "equal to tests/data/kafka-3.9"

fuzz: $(DEV) ## hostile bytes: SECONDS=n in all, or EXECUTIONS=n (default 1000000), FUZZ_ARGS
	@$(BIN)/python -m tests.fuzz.run $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(EXECUTIONS),--executions $(EXECUTIONS)) $(FUZZ_ARGS)

soak: $(DEV) ## reliability for MINUTES=n (default 60): kills, power loss, disks, clusters, fuzz, threads, memory: SOAK_ARGS
	@$(BIN)/python -m tests.soak.run --minutes $(MINUTES) $(SOAK_ARGS)

mutants: $(DEV) ## plant small faults in the lines changed since BASE=commit and list what no test notices: MUTANTS_ARGS
	@$(BIN)/python -m tests.mutants.run $(if $(BASE),--base $(BASE)) --jobs $(JOBS) $(MUTANTS_ARGS)

boundscheck: $(DEV) ## the kernels' tests and 100000 fuzzed inputs with array bounds checked
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(VENV)/numba-boundscheck \
		$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -k "kernel or kernels" $(call NONE_IS_FINE,no kernel tests yet)
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(VENV)/numba-boundscheck \
		$(BIN)/python -m tests.fuzz.run --engine seeded --executions 100000 $(FUZZ_ARGS)

nojit-coverage: $(DEV) ## coverage with the kernels run as plain Python
	@NUMBA_DISABLE_JIT=1 $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) --cov --cov-report=term --cov-report=html \
		$(wildcard tests/unit tests/property tests/cli)

workload: $(ALL) ## generate, clean and verify 10 million records on Spark: SPEC=file or preset, RECORDS=n, WORKLOAD_ARGS
	@$(BIN)/logstore workload run $(or $(SPEC),logstore/spark/generation/ten-million.toml) \
		$(if $(RECORDS),--set records=$(RECORDS)) $(WORKLOAD_ARGS)

bench: $(DEV) ## speed beside Kafka's cleaner in the same run, minutes: BENCH_ARGS="--only 'clean/100B*' --mib 64"
	@$(BIN)/python -m logstore.bench $(BENCH_ARGS)

bench-full: $(DEV) ## the same along every axis, hours: BENCH_ARGS
	@$(BIN)/python -m logstore.bench --full $(BENCH_ARGS)

bench-wire: $(DEV) ## this broker beside Kafka, kfake and librdkafka's mock over the wire, minutes: BENCH_ARGS
	@$(BIN)/python -m logstore.bench.wire $(BENCH_ARGS)

docs: $(DEV) ## write again what docs/ has from the code: commands, keys, APIs, packages, answers
	@PYTHONPATH=. $(BIN)/python tools/cli_docs.py
	@PYTHONPATH=. $(BIN)/python tools/config_docs.py
	@PYTHONPATH=. $(BIN)/python tools/wire_docs.py
	@PYTHONPATH=. $(BIN)/python tools/workload_docs.py
	@PYTHONPATH=. $(BIN)/python tools/api_docs.py
	@PYTHONPATH=. $(BIN)/python tools/layers.py
	@PYTHONPATH=. $(BIN)/python tools/performance_docs.py
	@PYTHONPATH=. $(BIN)/python tools/fault_names.py
	@PYTHONPATH=. $(BIN)/python tools/reason_docs.py
	@PYTHONPATH=. $(BIN)/python tools/question_pages.py
	@PYTHONPATH=. $(BIN)/python tools/scenario_docs.py
	@PYTHONPATH=. $(BIN)/python tools/soak_docs.py

docs-site: $(SITE) ## build the documentation site into build/site, strictly: a broken link fails
	@$(BIN)/python -m tools.site

pictures: $(DEV) ## make the pictures of docs/ again: the page, a simulation, the terminal (needs Chromium)
	@$(BIN)/python -m tools.page_shots
	@$(BIN)/python -m tools.pictures

# --- upkeep -----------------------------------------------------------------------------------

messages: $(DEV) ## write the tables of Kafka's messages again from its jars (needs a JDK and Maven)
	@$(BIN)/python -m tests.support.interop.message_definitions
	@$(BIN)/ruff format --quiet logstore/messages

lock: | $(BIN)/python ## write requirements/*.txt again (LOCK_FLAGS=--upgrade for newer versions)
	@requirements/lock.sh $(LOCK_FLAGS)

release: $(RELEASE) ## build wheel and source archive of the last commit twice, compare, check and hash them (dist/)
	@$(BIN)/python -m tools.release

release-try: $(RELEASE) ## install the wheel of dist/ into empty environments and try it: PYTHON="python3.11 python3.12"
	@$(BIN)/python -m tools.try_release $(PYTHON)

clean: ## remove caches, builds and .venv
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
