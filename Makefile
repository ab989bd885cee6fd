# What a newcomer types. `make` alone lists it.
# One build profile (release) for tests, CI and measuring, so that nothing is compiled twice and what is tested is what
# measures.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build verify test check lint deny docs unit rigs bench nightly clean

CARGO ?= cargo
SCENARIO ?= workspace
ARGS ?=
# Where the servers of tests and benches come from: some tests start private ones anyway.
RIG ?= local
# `DENY=required` makes a missing cargo-deny an error, and asks its advisory database as well (network).
DENY ?= optional
SCRIPTS := scripts/setup scripts/engine scripts/images scripts/postgres-versions scripts/rigs \
	$(wildcard scripts/images.d/*/entrypoint) .ci/run
# Scenarios in which something is broken and the lease design passes.
FAULTS := broker-stall broker-cut drainer-crash drainer-paused lease-overrun backends-killed late-commit held-xmin
BIN := $(or $(CARGO_TARGET_DIR),target)/release/drainbench
PROFILE := --locked --release
# The benches have no tests; lint compiles them, bench builds them.
TESTED := --workspace --exclude benches
nextest := $(shell command -v cargo-nextest)
# What a record says it was made with.
export DRAINBENCH_COMMIT := $(shell git describe --always --dirty --abbrev=12 --exclude "*" 2>/dev/null)

help: ## This list
	@printf 'make TARGET [ARGS="..."]\n\n'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing to build and to run a rig; starts no service (scripts/setup --help)
	@scripts/setup

build: setup ## Build target/release/drainbench
	$(CARGO) build $(PROFILE) --package harness --bin drainbench

verify: build ## Run a scenario and judge it; SCENARIO=workspace, further flags in ARGS
	$(BIN) verify $(SCENARIO) $(ARGS)

test: setup check lint deny docs unit ## All checks and all tests, in one rig; flags of the test runner in ARGS

check: ## Formatting, and the scripts
	$(CARGO) fmt --all --check
	bash -n $(SCRIPTS)
	@if command -v shellcheck >/dev/null; then shellcheck $(SCRIPTS); else echo 'shellcheck is not installed: skipped'; fi

lint: ## Clippy; warnings are errors
	$(CARGO) clippy $(PROFILE) --workspace --all-targets -- --deny warnings

deny: ## Licences, bans and sources of all dependencies, when cargo-deny is installed (DENY=required insists)
	@if command -v cargo-deny >/dev/null; then \
		$(CARGO) deny --workspace check bans licenses sources $(if $(filter required,$(DENY)),advisories); \
	elif [ '$(DENY)' = required ]; then \
		echo 'cargo-deny is not installed (cargo install --locked cargo-deny)' >&2; exit 1; \
	else \
		echo 'cargo-deny is not installed: skipped'; \
	fi

docs: ## API documentation; warnings are errors
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc $(PROFILE) --workspace --no-deps

# The tests build the binary as well, with the features of the tests' own dependencies: the rig runs on that one.
unit: ## The tests alone
ifneq ($(nextest),)
	$(CARGO) nextest run $(PROFILE) $(TESTED) --no-run
	$(CARGO) test $(PROFILE) $(TESTED) --doc
	$(BIN) rig --rig $(RIG) -- $(CARGO) nextest run $(PROFILE) $(TESTED) $(ARGS)
else
	$(CARGO) test $(PROFILE) $(TESTED) --lib --bins --tests --no-run
	$(CARGO) test $(PROFILE) $(TESTED) --doc
	$(BIN) rig --rig $(RIG) -- $(CARGO) test $(PROFILE) $(TESTED) --lib --bins --tests $(ARGS)
endif

rigs: ## Tests that need containers, other PostgreSQL versions or PgBouncer; flags of the test runner in ARGS
	@CARGO='$(CARGO)' scripts/rigs $(ARGS)

bench: build ## Criterion benches, in a rig; flags of criterion in ARGS
	$(BIN) rig --rig $(RIG) -- $(CARGO) bench --locked --workspace -- $(ARGS)

# slow-disk and spare-connection are right when they end undecided (5): each shows what the drainer is not to blame for.
nightly: build ## What takes long: three rounds of workspace, every other shipped scenario, every saboteur
	$(BIN) verify smoke $(ARGS)
	$(BIN) verify workspace --rounds 3 $(ARGS)
	for scenario in slow-disk spare-connection; do \
		code=0; $(BIN) verify "$$scenario" $(ARGS) || code=$$?; \
		if [ "$$code" -ne 5 ]; then echo "$$scenario ended with $$code, expected 5" >&2; exit 1; fi; \
	done
	for scenario in $(FAULTS); do $(BIN) verify "$$scenario" $(ARGS); done
	code=0; $(BIN) verify poison-head $(ARGS) || code=$$?; \
	if [ "$$code" -ne 3 ]; then echo "poison-head ended with $$code, expected 3" >&2; exit 1; fi
	$(BIN) rig --rig $(RIG) -- $(CARGO) test $(PROFILE) --package harness --test it -- --ignored --test-threads=1 \
		saboteurs::

clean: ## Remove everything that was built, and local reports
	$(CARGO) clean
	rm -rf reports/local
