# The short ways; `make help` lists them. CMake does the building (plain `cmake -B build && cmake --build build` works
# too), the scripts in scripts/ do the rest. Variables: BUILD, JOBS, CMAKE_FLAGS, ARCH, CUDA, TEST_FLAGS, FUZZ_SECONDS,
# SESSION_SECONDS, GPUS, PREFIX, DESTDIR, PYTHON.

export BUILD ?= build
export JOBS
export CMAKE_FLAGS
export DESTDIR
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SESSION_SECONDS ?= 3600
PYTHON ?= python3
# Only as arguments of make: in some clusters' environments ARCH, CUDA and GPUS mean something else.
ifeq ($(origin ARCH),command line)
export MEGATRON_ARCH := $(ARCH)
endif
ifeq ($(origin CUDA),command line)
export MEGATRON_CUDA := $(CUDA)
endif
ifeq ($(origin GPUS),command line)
export MEGATRON_GPUS := $(GPUS)
endif
PROGRAMS := $(basename $(notdir $(wildcard src/programs/megatron_*.cpp)))

.DEFAULT_GOAL := build
.PHONY: build demo gallery test test-all gpu-test gpu-bench gpu-pack gpu-session slurm-test fuzz check format install uninstall deb clean help

build: ## release build into build/, programs linked at the top level (the default)
	@scripts/setup.sh
	@scripts/build.sh $(PROGRAMS)

demo: build ## packages, build, sample text, shards, a GPT trained on 8 ranks, generated text
	@scripts/demo.sh

gallery: build ## trains the inputs of docs/gallery.md and compares loss, time and text (about 10 minutes on two cores)
	@scripts/gallery.sh

test: ## packages, build, all tests but the long ones (chosen by name: make test TEST_FLAGS="-R parity")
	@scripts/setup.sh
	@scripts/build.sh all
	@scripts/test.sh $(TEST_FLAGS)

test-all: ## the same with the long ones (on two cores about half an hour): every layout, failures of programs and machines, an emulated GPU
	@scripts/setup.sh
	@scripts/build.sh all
	@scripts/test.sh --all

fuzz: ## 60 seconds of fuzzing each reader of foreign input (FUZZ_SECONDS=N); installs Clang, builds into build-fuzz/
	@unset BUILD CMAKE_FLAGS; scripts/fuzz.sh $(FUZZ_SECONDS)

ifneq ($(filter megatron_bench,$(PROGRAMS)),)
.PHONY: bench
bench: build ## speed: share of this machine's own matrix-multiply rate, on one and two ranks, bubbles of the schedules, decoding, overlap, memory with each option; next to PyTorch's if found
	@./megatron_bench --all
	@scripts/launch.sh 2 ./megatron_bench --all
	@if $(PYTHON) -c 'import torch' 2> /dev/null; then $(PYTHON) scripts/bench/bench_pytorch.py; \
	else echo "bench: no comparison with PyTorch: $(PYTHON) has no torch (make bench PYTHON=...)"; fi
endif

slurm-test: build ## the job files of slurm/ under a private Slurm on this machine; skipped where there is none
	@scripts/slurm_test.sh || [ $$? -eq 77 ]

gpu-test: ## tests of the CUDA backend on this machine's GPU (under compute-sanitizer: make gpu-test TEST_FLAGS="--sanitizer memcheck")
	@scripts/setup.sh
	@MEGATRON_CUDA=1 scripts/build.sh all
	@scripts/gpu_test.sh $(TEST_FLAGS) || [ $$? -eq 77 ]

gpu-bench: ## speed on this machine's GPU: operations against its own ceilings; training steps, next to PyTorch's if found
	@scripts/setup.sh
	@MEGATRON_CUDA=1 scripts/build.sh $(PROGRAMS) bench_cuda_ops
	@$(BUILD)/tests/gpu/bench_cuda_ops || [ $$? -eq 77 ]
	@if $(PYTHON) -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then \
	$(PYTHON) scripts/bench/bench_pytorch_gpu.py; \
	else echo "gpu-bench: no comparison with PyTorch: $(PYTHON) has none that sees a GPU (make gpu-bench PYTHON=...)"; fi

gpu-pack: ## programs, GPU tests and benchmarks with their libraries, in one file for a GPU machine without our packages, in build-gpu/ (GPUS=90-real)
	@scripts/setup.sh xz-utils
	@unset BUILD; scripts/pack_gpu.sh

gpu-session: ## all of docs/gpu_validation.md on this machine's GPU, the most valuable first, within SESSION_SECONDS
	@scripts/setup.sh
	@MEGATRON_CUDA=1 scripts/build.sh all
	@scripts/gpu_session.sh $(SESSION_SECONDS)

check: ## layering of the includes, headers that compile alone, formatting, phrases to avoid, comments and test names
	@scripts/setup.sh clang-format
	@scripts/checks/check_layers.sh --self-test
	@scripts/checks/check_layers.sh
	@scripts/checks/check_headers.sh --self-test
	@scripts/checks/check_headers.sh
	@scripts/checks/check_words.sh --self-test
	@scripts/checks/check_words.sh
	@scripts/checks/check_comments.sh --self-test
	@scripts/checks/check_comments.sh
	@scripts/format.sh --check

format: ## clang-format over all sources, in place
	@scripts/setup.sh clang-format
	@scripts/format.sh

# DESTDIR is CMake's own. PREFIX may be relative to here.
install: build ## programs, launcher, demo, inputs, documents, manual pages (if help2man is here), completion and module file into PREFIX (/usr/local), in front of which DESTDIR is put; the CUDA backend, if built
	@cmake --install $(BUILD) --prefix $(abspath $(PREFIX)) --strip

uninstall: ## what the last `make install` of this build folder has installed, from the same DESTDIR
	@scripts/release/uninstall.sh $(BUILD)/install_manifest.txt

deb: ## a Debian package of the CPU programs, for any x86-64 processor with AVX2 (ARCH=x86-64-v3), in build-deb/
	@scripts/setup.sh dpkg-dev file
	@scripts/release/deb.sh

clean: ## remove build/, build-deb/, build-gpu/ and the links to them; data/ and runs/ stay
	rm -rf $(BUILD) build-deb build-gpu
	rm -f $(PROGRAMS)

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | \
	  awk -F'|' '$(if $(filter megatron_bench,$(PROGRAMS)),,$$1 !~ /bench/ )  { printf "%-16s %s\n", $$1, $$2 }'
	@echo "  Variables: BUILD=$(BUILD) JOBS=N CMAKE_FLAGS=-D... ARCH=native|x86-64-v3|... TEST_FLAGS=..."
	@echo "             CUDA=1|0 (with or without the CUDA backend; default: with it where a GPU and nvcc are found)"
	@echo "             FUZZ_SECONDS=$(FUZZ_SECONDS) SESSION_SECONDS=$(SESSION_SECONDS) PREFIX=$(PREFIX) PYTHON=$(PYTHON)"
