# The commands for this tree, which `make help` lists. Each runs under scripts/with-tools, which
# installs the tools that the machine lacks where it may, and otherwise names them.

TOOLS := scripts/with-tools

# `make install` installs below $(DESTDIR)$(PREFIX).
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo install test test-full bench peers soak coverage mutants package fmt clean

help:
	@echo "make demo       searches this machine's text with 3-5% of the index in DRAM, then kills a program"
	@echo "                again and again, and finds all that it saved"
	@echo "make install    installs both commands with manual pages and completions, and the C library with"
	@echo "                its header, below PREFIX (/usr/local), or below DESTDIR and PREFIX for a package"
	@echo "make test       checks everything that must hold: format, lints, licences, tests, models, documents"
	@echo "make test-full  does the same with more random runs, AddressSanitizer and all quick benchmarks"
	@echo "make bench      measures the figures and writes them to docs/results/. It takes some hours and 30 GiB"
	@echo "                of disk, for the file that FLASH=PATH names and others in its directory. It needs root"
	@echo "                for the comparison with swap."
	@echo "make peers      compares with redb, fjall, LMDB and foyer (20 GiB of disk, root;"
	@echo "                ARGS='--quick --dir DIR')"
	@echo "make coverage   prints what share of each crate's lines the tests run"
	@echo "make soak       runs make test-full, then the tests of durability with new seeds until each reaches its"
	@echo "                larger aim in scripts/figures (ROWS: which of them, or no), 1,000 kills of a device's"
	@echo "                process under load, some mutants (MUTANTS=no: none), and then all randomised tests with"
	@echo "                new seeds for MINUTES (60)"
	@echo "make mutants    changes one thing at a time in format, policy and store, and checks that a test fails."
	@echo "                It takes many hours. SHARD=k/n tries a part, SAMPLE=n SEED=s a random sample."
	@echo "make package    packages each crate that is published; ARGS=verify builds each as users get it"
	@echo "make fmt        formats the sources"
	@echo "make clean      removes what was built"

demo:
	@$(TOOLS) cargo run --quiet --profile demo -p fulgurite-demo -- $(ARGS)

install:
	@$(TOOLS) cargo build --release -p fulgurite-cli -p fulgurite-lab -p fulgurite-preload -p fulgurite-capi
	@DESTDIR="$(DESTDIR)" scripts/install all "$(PREFIX)" "$(TARGET)/release"

test:
	@$(TOOLS) --with nextest,deny,programs scripts/test

test-full:
	@$(TOOLS) --with nextest,deny,programs,usearch scripts/test full

bench:
	@$(TOOLS) scripts/bench

peers:
	@$(TOOLS) cargo run --quiet --release --manifest-path peers/Cargo.toml --target-dir $(TARGET) -- $(ARGS)

soak:
	@$(TOOLS) --with nextest,deny scripts/soak

coverage:
	@$(TOOLS) --with nextest,llvm-cov scripts/coverage

mutants:
	@$(TOOLS) scripts/mutants

package:
	@$(TOOLS) scripts/package $(ARGS)

fmt:
	@$(TOOLS) cargo fmt --all
	@$(TOOLS) cargo fmt --manifest-path peers/Cargo.toml

clean:
	@$(TOOLS) cargo clean
