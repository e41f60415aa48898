# What one does with the tree. `make help` lists it. The scripts say what a machine lacks, and install it where they may.

TOOLS := scripts/with-tools

.PHONY: help demo test bench soak mutants fmt clean

help:
	@echo "make demo    index this machine's text into flash memory and serve it with 3-5% of the index in DRAM;"
	@echo "             then kill a program again and again, and find all that it saved"
	@echo "make test    everything that must hold: format, lints, tests, models, sanitizer, documents, quick benchmarks"
	@echo "make bench   the figures, into docs/results/ (some hours; 30 GiB of disk, for the file"
	@echo "             that FLASH=PATH names and those beside it; root for the comparison with swap)"
	@echo "make soak    the tests of durability up to the larger aims of scripts/figures, with ever new seeds"
	@echo "             (ROWS: which of them, or no), 1,000 kills of a device's process under load, some mutants"
	@echo "             (MUTANTS=no: none), then all randomised tests with new seeds, for MINUTES (60)"
	@echo "make mutants change one thing at a time in format, policy and store: do the tests notice?"
	@echo "             (many hours; SHARD=k/n does a part)"
	@echo "make fmt     format the sources"
	@echo "make clean   remove what was built"

demo:
	@$(TOOLS) cargo run --quiet --release -p fulgurite-cli -- demo $(ARGS)

test:
	@$(TOOLS) scripts/test

bench:
	@$(TOOLS) scripts/bench

soak:
	@$(TOOLS) scripts/soak

mutants:
	@$(TOOLS) scripts/mutants

fmt:
	@$(TOOLS) cargo fmt --all

clean:
	@$(TOOLS) cargo clean
