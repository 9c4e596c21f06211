# The short ways; `make help` lists them. CMake does the building (plain `cmake -B build && cmake --build build` works
# too), the scripts in scripts/ do the rest. Variables: BUILD, JOBS, CMAKE_FLAGS, ARCH, TEST_FLAGS, FUZZ_SECONDS,
# PREFIX, PYTHON.

export BUILD ?= build
export JOBS
export CMAKE_FLAGS
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
PYTHON ?= python3
# Only as an argument of make: in some clusters' environments ARCH means something else.
ifeq ($(origin ARCH),command line)
export MEGATRON_ARCH := $(ARCH)
endif
PROGRAMS := $(basename $(notdir $(wildcard src/programs/megatron_*.cpp)))

.DEFAULT_GOAL := build
.PHONY: build demo test slurm-test fuzz check format install clean help

build: ## release build into build/, programs linked at the top level (the default)
	@scripts/setup.sh
	@scripts/build.sh $(PROGRAMS)

demo: build ## packages, build, sample text, shards, a GPT trained on 8 ranks, generated text
	@scripts/demo.sh

test: ## packages, build, all tests (one folder: make test TEST_FLAGS="-R parity")
	@scripts/setup.sh
	@scripts/build.sh all
	@scripts/test.sh $(TEST_FLAGS)

fuzz: ## 60 seconds of fuzzing each reader of foreign input (FUZZ_SECONDS=N); installs Clang, builds into build-fuzz/
	@unset BUILD CMAKE_FLAGS; scripts/fuzz.sh $(FUZZ_SECONDS)

ifneq ($(filter megatron_bench,$(PROGRAMS)),)
.PHONY: bench
bench: build ## speed: share of this machine's own matrix-multiply rate, on one and two ranks, bubbles of the schedules, overlap, memory with each lever; beside PyTorch's if found
	@./megatron_bench
	@scripts/launch.sh 2 ./megatron_bench
	@if $(PYTHON) -c 'import torch' 2> /dev/null; then $(PYTHON) scripts/bench_pytorch.py; \
	else echo "bench: no comparison with PyTorch: $(PYTHON) has no torch (make bench PYTHON=...)"; fi
endif

slurm-test: build ## the job files of slurm/ under a private Slurm on this machine; skipped where there is none
	@scripts/slurm_test.sh || [ $$? -eq 77 ]

check: ## layering of the includes, and formatting
	@scripts/setup.sh clang-format
	@scripts/check_layers.sh --self-test
	@scripts/check_layers.sh
	@scripts/format.sh --check

format: ## clang-format over all sources, in place
	@scripts/setup.sh clang-format
	@scripts/format.sh

install: build ## programs into PREFIX/bin (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(addprefix $(BUILD)/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin

clean: ## remove build/ and the links to it; data/ and runs/ stay
	rm -rf $(BUILD)
	rm -f $(PROGRAMS)

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | \
	  awk -F'|' '$(if $(filter megatron_bench,$(PROGRAMS)),,$$1 !~ /bench/ )  { printf "%-16s %s\n", $$1, $$2 }'
	@echo "  Variables: BUILD=$(BUILD) JOBS=N CMAKE_FLAGS=-D... ARCH=native|x86-64-v3|... TEST_FLAGS=..."
	@echo "             FUZZ_SECONDS=$(FUZZ_SECONDS) PREFIX=$(PREFIX) PYTHON=$(PYTHON)"
