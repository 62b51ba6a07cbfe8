# Thin: each target calls a script or a preset. Start with `make demo` or `make test`.
SHELL := /bin/bash
.NOTPARALLEL:
.DEFAULT_GOAL := help

STEP := tools/step.sh
JOBS := $(shell nproc)
BUILD := build

# `make demo ARGS="--model DIR"`: what follows `refit demo`.
ARGS ?=

.PHONY: help deps configure build model nixl router demo test test-sglang test-sglang-full faults soak goals bench lint rules mutants sim scenarios planted coverage fuzz models models-all clean

help:
	@echo 'make deps      installs the packages that building needs (root, or sudo)'
	@echo 'make build     builds build/bin/refit and build/bin/refit-engine'
	@echo 'make demo      a refit of two engines with a real language model; ARGS="..." goes to refit demo'
	@echo 'make test      everything that must be green, CTest last'
	@echo 'make test-sglang  unmodified SGLang servers on the CPU (installs two, 12 GB, once); test-sglang-full: every TP size'
	@echo 'make faults    kill -9 of every role in every phase, under traffic; ARGS="--row transfer/engine" runs one row'
	@echo 'make soak      one fleet for hours: refits, killed controllers, failed launches; ARGS="--refits 200 --kills 50" makes it short'
	@echo 'make goals     the goals in figures against what faults and soak measured last'
	@echo 'make bench     the shared-memory path against what this memory can do'
	@echo 'make lint      layers, banned words, format; clang-tidy on the files you changed'
	@echo 'make rules     what proves each rule of the contract; tools/rules.py RC-KILL-05 for one'
	@echo 'make mutants   planted bugs: each must turn a test red'
	@echo 'make sim       100,000 simulated fleets under faults; make planted: bugs that the simulator must find'
	@echo 'make scenarios runs sim/scenarios; ARGS=--rewrite accepts what happens now'
	@echo 'make coverage  the core under sanitizers, its lines counted'
	@echo 'make fuzz      libFuzzer on every parser, SECONDS_EACH=60'
	@echo 'make models    the protocols, checked exhaustively by Spin; models-all: also what may be missing alone'
	@echo 'make clean     removes the build folders'

deps:
	@$(STEP) deps tools/deps.sh

configure: deps
	@$(STEP) configure cmake --preset dev --log-level=WARNING

build: configure
	@$(STEP) build ninja -C $(BUILD) -j $(JOBS) refit refit-engine

# The folder of the demo's model, in the cache outside the tree; no network is needed once it is there.
model: configure
	@$(STEP) model bash -o pipefail -c 'tools/demo_model/fetch.sh | tail -n 1 >$(BUILD)/demo_model'

OTHER_MODEL := $(findstring --model,$(ARGS))$(findstring --random,$(ARGS))$(findstring --help,$(ARGS))
demo: build $(if $(OTHER_MODEL),,model)
	@exec $(BUILD)/bin/refit demo $(if $(OTHER_MODEL),,--model "$$(cat $(BUILD)/demo_model)") $(ARGS)

# The folder of NIXL's wheel, in that cache as well.
nixl: configure
	@$(STEP) nixl bash -o pipefail -c 'tools/nixl/fetch.sh | tail -n 1 >$(BUILD)/nixl'

# The Python that has sglang-router, in that cache as well.
router: configure
	@$(STEP) router bash -o pipefail -c 'tools/router/fetch.sh | tail -n 1 >$(BUILD)/router'

# CTest's summary must be the last thing printed, so nothing follows it. Without the model, NIXL or the router (no network and
# nothing cached) the tests that need them say so and are skipped.
test: configure
	@$(STEP) tidy tools/tidy.py
	@$(STEP) build ninja -C $(BUILD) -j $(JOBS)
	@$(MAKE) --no-print-directory coverage
	@$(MAKE) --no-print-directory model || echo 'no demo model: the tests that need it are skipped'
	@$(MAKE) --no-print-directory nixl || echo 'no NIXL: the tests that need it are skipped'
	@$(MAKE) --no-print-directory router || echo 'no sglang-router: the tests that need it are skipped'
	@REFIT_DEMO_MODEL=$$(cat $(BUILD)/demo_model 2>/dev/null) REFIT_NIXL=$$(cat $(BUILD)/nixl 2>/dev/null) \
	  REFIT_ROUTER_PYTHON=$$(cat $(BUILD)/router 2>/dev/null) \
	  exec ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

# Not part of `make test`: it installs two servers, and runs for minutes. The last line is "N passed, 0 failed".
test-sglang test-sglang-full: configure
	@$(STEP) build ninja -C $(BUILD) -j $(JOBS) refit engine-conformance write-checkpoint
	@$(MAKE) --no-print-directory router || echo 'no sglang-router: the rows of faults go without'
	@REFIT_ROUTER_PYTHON=$$(cat $(BUILD)/router 2>/dev/null) exec tests/sglang/run.sh $(BUILD) $(if $(filter %-full,$@),--full)

# Not part of `make test`. The last line is "N passed, 0 failed".
faults: build
	@$(MAKE) --no-print-directory router || echo 'no sglang-router: the rows that need it are skipped'
	@REFIT_ROUTER_PYTHON=$$(cat $(BUILD)/router 2>/dev/null) exec tests/faults/suite.py $(BUILD)/bin --json $(BUILD)/faults.json --report docs/reliability-results.md --keep $(BUILD)/faults $(ARGS)

soak: build
	@$(MAKE) --no-print-directory router || echo 'no sglang-router: the fleet has none'
	@REFIT_ROUTER_PYTHON=$$(cat $(BUILD)/router 2>/dev/null) exec tests/faults/soak.py $(BUILD)/bin --json $(BUILD)/soak $(ARGS)

goals: configure
	@$(STEP) sim-build ninja -C $(BUILD) -j $(JOBS) refit-sim
	@$(STEP) sim $(BUILD)/bin/refit-sim --seeds 110000 --json >$(BUILD)/sim.json  # 10,000 killed or frozen controllers
	@tools/goals.py $(BUILD)

bench: build
	@$(STEP) 'bench qwen3-0.6b' $(BUILD)/bin/refit bench shm --random qwen3-0.6b --json
	@$(STEP) 'bench moe-18k' $(BUILD)/bin/refit bench shm --random moe-18k --json

lint: deps
	@$(STEP) tidy tools/tidy.py
	@$(STEP) tools-test python3 -m unittest discover -q -s tools -p '*_test.py'
	@$(STEP) mutant-tables tools/mutants.py --check
	@$(STEP) machines tools/draw_machines.py --check
	@$(STEP) rules tools/rules.py
	@$(STEP) format tools/lint.sh format
	@$(STEP) clang-tidy tools/lint.sh tidy

rules:
	@tools/rules.py

mutants: deps
	@$(STEP) mutants-configure cmake --preset mutants --log-level=WARNING
	@$(STEP) mutants-build ninja -C build-mutants -j $(JOBS) $$(tools/mutants.py --programs)
	@tools/mutants.py build-mutants

SEEDS ?= 100000
sim: configure
	@$(STEP) sim-build ninja -C $(BUILD) -j $(JOBS) refit-sim
	@$(STEP) sim $(BUILD)/bin/refit-sim --seeds $(SEEDS) --all-arrows $(ARGS)

scenarios: configure
	@$(STEP) sim-build ninja -C $(BUILD) -j $(JOBS) refit-sim
	@$(STEP) scenarios $(BUILD)/bin/refit-sim --scenarios sim/scenarios $(ARGS)

planted: configure
	@$(STEP) sim-build ninja -C $(BUILD) -j $(JOBS) refit-sim refit-sim-planted
	@$(STEP) planted $(BUILD)/bin/refit-sim --planted all $(ARGS)

coverage: deps
	@$(STEP) coverage-configure cmake --preset coverage --log-level=WARNING
	@$(STEP) coverage tools/coverage.py build-coverage

SECONDS_EACH ?= 60
fuzz:
	@tools/deps.sh --lint
	@$(STEP) fuzz-configure cmake --preset fuzz --log-level=WARNING
	@$(STEP) fuzz tools/lint.sh fuzz $(SECONDS_EACH)

models models-all: deps
	@$(STEP) $@ tools/models.py $(if $(filter %-all,$@),--all)

clean:
	rm -rf build build-release build-mutants build-coverage build-asan build-tsan build-fuzz
