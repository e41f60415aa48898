# What one does with the tree. `make help` lists it. The scripts say what a machine lacks, and install it where they may.

TOOLS := scripts/with-tools

# Where `make install` puts things: below $(DESTDIR)$(PREFIX).
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo install test test-full bench peers soak coverage mutants package fmt clean

help:
	@echo "make demo    index this machine's text into flash memory and serve it with 3-5% of the index in DRAM;"
	@echo "             then kill a program again and again, and find all that it saved"
	@echo "make install  both commands, their manual pages and completions, and the C library with its header, below"
	@echo "             PREFIX (/usr/local), or below DESTDIR and that for a package"
	@echo "make test    everything that must hold: format, lints, licences, tests, models, documents"
	@echo "make test-full  the same with more of all that is random, the sanitizer, and all quick benchmarks"
	@echo "make bench   the figures, into docs/results/ (some hours; 30 GiB of disk, for the file"
	@echo "             that FLASH=PATH names and those beside it; root for the comparison with swap)"
	@echo "make peers   the comparison with redb, fjall, LMDB and foyer (20 GiB of disk, root; ARGS='--quick --dir DIR')"
	@echo "make coverage  what share of each crate's lines its tests run"
	@echo "make soak    make test-full, then the tests of durability up to the larger aims of scripts/figures, with ever new seeds"
	@echo "             (ROWS: which of them, or no), 1,000 kills of a device's process under load, some mutants"
	@echo "             (MUTANTS=no: none), then all randomised tests with new seeds, for MINUTES (60)"
	@echo "make mutants change one thing at a time in format, policy and store: do the tests notice?"
	@echo "             (many hours; SHARD=k/n does a part, SAMPLE=n SEED=s some by chance)"
	@echo "make package  a package of each crate that is published; ARGS=verify builds each as users get it"
	@echo "make fmt     format the sources"
	@echo "make clean   remove what was built"

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
