# What there is to do with floodway. Each target does its own set-up; those that need root say so.
#
# Without DPDK, or without root, `demo` and `test` do what can be done and say what they leave out.

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench aarch64 fuzz

# Two jobs build at a time unless JOBS says otherwise; a build of the DPDK bindings takes half a GiB.
JOBS ?= $(shell nproc)
CARGO := cargo
has_dpdk = pkg-config --exists libdpdk 2>/dev/null
# One command line for both builds, so that nothing is built twice.
PROGRAMS := build --release -j $(JOBS) -p floodwayd -p cli -p scenarios
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## this list
	@echo 'make <target>:'
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

setup: ## install what is missing (packages, Rust); as root on Debian
	@deploy/setup.sh

demo: setup ## two tenants, real traffic, a table of what was expected and seen; as root with DPDK, else in memory
	@if $(has_dpdk); then $(CARGO) $(PROGRAMS) --features floodwayd/dpdk; \
	else echo 'No libdpdk here: floodwayd is built without it.'; $(CARGO) $(PROGRAMS); fi
	@target/release/demo

test: setup ## all checks and tests
	@JOBS=$(JOBS) .ci/test

bench: setup ## packets through the pipeline beside its peers; needs DPDK
	$(CARGO) run --release -j $(JOBS) -p benches --features dpdk --bin peers

aarch64: setup ## cross-build floodwayd for a card's Arm cores
	deploy/aarch64.sh

fuzz: ## a minute on each fuzz target; needs cargo-fuzz
	@cd fuzz && for target in $$(RUSTC_BOOTSTRAP=1 cargo fuzz list); do \
		RUSTC_BOOTSTRAP=1 cargo fuzz run $$target -- -max_total_time=60 || exit 1; done
