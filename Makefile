# make help lists what there is. The first call of a target installs into .venv; a later one finds it installed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test test-all test-long nets runtime test-deploy test-cluster isaac test-isaac fuzz check release format docs docs-serve install install-dev bench bench-env bench-learner bench-gpu rival-mjlab bench-mjlab rival-gymnasium bench-gymnasium clean

VENV := .venv
BIN := $(VENV)/bin
RIVAL := .venv-mjlab
GYM_RIVALS := .venv-gymrivals
# Isaac Lab needs Python 3.12, and pins other versions than this project's own environment has.
ISAAC_VENV ?= .venv-isaac
ISAAC_KEY := $(shell cat constraints-isaac.txt pyproject.toml | cksum | cut -d' ' -f1)
ISAAC := $(ISAAC_VENV)/.installed-$(ISAAC_KEY)
# The first Python 3.12 that answers; PYTHON312=... names another.
PYTHON312 ?= $(shell for p in python3.12 $(HOME)/.pyenv/versions/3.12*/bin/python3.12 "$$(uv python find 3.12 2>/dev/null)"; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null && command -v $$p && break; done)
# The first Python >= 3.11 that answers; PYTHON=... names another.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p && break; done)
# make run TORCH_INDEX=https://download.pytorch.org/whl/cpu takes PyTorch from there (docs/install.md says why).
TORCH_INDEX ?=
# What is installed is known by the content of these two files, so an old checkout date reinstalls nothing.
KEY := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
CORE := $(VENV)/.core-$(KEY)
DEV := $(VENV)/.dev-$(KEY)
RUNTIME_DIR := deploy_jetson/runtime
RUNTIME_KEY := $(shell find $(RUNTIME_DIR) -type f -not -path '*/build/*' -not -name '*.pyc' | LC_ALL=C sort | xargs cat | cksum | cut -d' ' -f1)
RUNTIME := $(VENV)/.runtime-$(RUNTIME_KEY)
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The variable suppresses a notice of the theme about other programs.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
# Options of the training that make run starts, e.g. make run TRAIN="seed=2 max_iterations=300"
TRAIN ?=
TASK ?= go2_flat
# The learner that makes it walk first: on a GPU PPO, without one that of a learned world (docs/world_model.md).
WALKER := $(if $(filter go2_flat,$(TASK)),$(if $(wildcard /dev/nvidia0),,learner=world_model))
LEARNER := $(if $(findstring learner=,$(TRAIN)),,$(WALKER))
FUZZ ?= 1000
# make release URL=https://host/owner/robot-rl: where links of the READMEs lead. KERNELS: tasks compiled for GPUs.
URL ?=
KERNELS ?= go2_flat
# Options of make bench-gpu, e.g. make bench-gpu BENCH="kernels=kernels parts=env,rollout"
BENCH ?=
TOY ?=
# Tests keep their compiled modules, whatever the environment says: each process would compile all of them again.
unexport PYTHONDONTWRITEBYTECODE
# How many processes make test divides the tests among, one a core up to four; 0: all in one, as a debugger needs it.
WORKERS ?= logical
SPREAD := -n $(WORKERS) --maxprocesses 4 --dist worksteal
PYTEST := $(BIN)/python -m pytest
# The tests of long-<target>; .ci/long.py gives those of the groups that have to run.
TESTS ?= tests

.PHONY: long-unit long-deploy long-cluster long-isaac

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

run: $(CORE)  ## install, train a Go2 to walk, export, evaluate, film it, write the report
	$(BIN)/robot-rl train task=$(TASK) $(LEARNER) $(TRAIN)
	$(BIN)/robot-rl export run=$(TASK)/latest
	$(BIN)/robot-rl eval run=$(TASK)/latest
	$(BIN)/robot-rl video run=$(TASK)/latest || echo "no video: rendering needs EGL or OSMesa (docs/install.md)"
	$(BIN)/robot-rl report run=$(TASK)/latest
	@echo "see it walk in the browser: $(BIN)/robot-rl play run=$(TASK)/latest"

test: $(DEV)  ## install with the tools for development, run the tests that every change needs (tests/README.md)
	$(PYTEST) --ignore=tests/deploy --ignore=tests/cluster --ignore=tests/isaac -m "not long" $(SPREAD)

test-long: $(RUNTIME)  ## the long tests of what has changed since they passed; commit .ci/long.json with the change
	$(BIN)/python .ci/long.py run

test-all: test test-deploy test-cluster nets  ## every test, the long ones whether anything changed or not: an hour
	$(BIN)/python .ci/long.py run all

nets: $(DEV)  ## compare with main: bits of short trainings, bundles, settings, generated kernels, errors of the command line
	$(BIN)/python benchmarks/nets.py

runtime: $(RUNTIME)  ## build the robot binary and its Python module, and install them

test-deploy: $(RUNTIME)  ## the tests of the robot binary; one in real time that failed runs once more
	$(PYTEST) tests/deploy -m "not long and not realtime" $(SPREAD)
	$(PYTEST) tests/deploy -m "not long and realtime" --reruns 1

test-cluster: $(DEV)  ## one test of each launcher and kind of loss: torchrun, a real Slurm, a real Ray, on this machine
	$(PYTEST) tests/cluster -m "not long" -n 2 --dist loadfile --reruns 1

long-unit: $(DEV)
	$(PYTEST) $(TESTS) -m long $(SPREAD)

long-deploy: $(RUNTIME)
	$(PYTEST) $(TESTS) -m "long and not realtime" $(SPREAD)
	$(PYTEST) $(TESTS) -m "long and realtime" --reruns 1

long-cluster: $(DEV)
	$(PYTEST) $(TESTS) -m long -n 2 --dist loadfile --reruns 1

long-isaac: $(ISAAC)
	ROBOT_RL_REQUIRE_ALL=1 $(ISAAC_VENV)/bin/python -m pytest $(TESTS)

fuzz: $(RUNTIME)  ## damaged files, settings and messages against every reader, the robot's too; FUZZ says how many to a test
	FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/unit/fuzz tests/deploy/fuzz

check: $(DEV)  ## lint, format, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

release: $(DEV)  ## build and check what is published, into dist/: wheels, changelog, kernels; needs URL=https://...
	$(BIN)/python .ci/release.py "$(URL)" "$(KERNELS)"

format: $(DEV)  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(RUNTIME_DIR)/src/*.h $(RUNTIME_DIR)/src/*.cpp

docs: $(DEV)  ## build the site of docs/ into site/: warnings, dead links and dead anchors are errors
	$(MKDOCS) build --strict --clean

docs-serve: $(DEV)  ## the same at http://127.0.0.1:8000, built again at every change
	$(MKDOCS) serve --dev-addr 127.0.0.1:8000

bench: bench-env bench-learner  ## the two benchmarks that the wheel has; the others are benchmarks/*.py

bench-env: $(CORE)  ## environment steps against the bare physics
	$(BIN)/robot-rl bench env task=$(TASK) num_envs=1024

bench-learner: $(CORE)  ## the PPO update against rsl_rl's
	$(BIN)/robot-rl bench learner

# Installs nothing: a GPU machine without a network has the packages in PYTHONPATH, and no .venv (docs/gpu.md).
bench-gpu:  ## everything there is to measure on a GPU, in 9 minutes; TOY=1: at toy size on a CPU
	$(if $(wildcard $(BIN)/python),$(BIN)/python,python3) benchmarks/bench_gpu.py $(if $(TOY),toy=true) $(BENCH)

rival-mjlab: $(RIVAL)/.installed  ## .venv-mjlab with mjlab, a rival that pins other versions of MuJoCo

bench-mjlab: $(CORE) $(RIVAL)/.installed  ## environment steps against mjlab's, on the CPU
	$(BIN)/python benchmarks/env_mjlab.py num_envs=1024 out=benchmarks/bench_env_mjlab.json

rival-gymnasium: $(GYM_RIVALS)/.installed  ## .venv-gymrivals with stable-baselines3 and Gymnasium

bench-gymnasium: $(DEV)  ## ours in Gymnasium's environments, against the rivals that were run once
	$(BIN)/python benchmarks/gymnasium_v5.py out=benchmarks/bench_gymnasium.json

test-isaac:  ## the tests of Isaac Lab's environments, there
	$(BIN)/python .ci/long.py run all isaac

isaac: $(ISAAC)  ## .venv-isaac: Isaac Lab 3.0 on Newton, and this project beside it (Python 3.12, 8 GB)

install: $(CORE)  ## .venv with what training needs

install-dev: $(DEV)  ## .venv with what developing needs

$(RUNTIME): | $(DEV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PIP) install -q ./$(RUNTIME_DIR)
	rm -f $(VENV)/.runtime-*
	touch $@

clean:  ## remove .venv and the caches (runs/ stays)
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# PyTorch goes first and by its exact version: a later package would pull in the newest build with all of CUDA.
define install
	$(PIP) install -q -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch \
		|| { echo "PyTorch could not be installed$(if $(TORCH_INDEX), from $(TORCH_INDEX); if that address cannot be reached omit TORCH_INDEX)" >&2; exit 1; }
	$(PIP) install -q -c constraints.txt -e '$(1)'
	rm -f $(VENV)/.core-* $(VENV)/.dev-*
endef

# PyTorch first here, too: the exact version's CPU build, before anything asks for the newest.
$(RIVAL)/.installed: benchmarks/mjlab-constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(RIVAL)
	$(RIVAL)/bin/python -m pip --disable-pip-version-check install -q -c $< $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(RIVAL)/bin/python -m pip --disable-pip-version-check install -q -c $< mjlab
	touch $@

$(GYM_RIVALS)/.installed: benchmarks/gymnasium-constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(GYM_RIVALS)
	$(GYM_RIVALS)/bin/python -m pip --disable-pip-version-check install -q -c $< $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(GYM_RIVALS)/bin/python -m pip --disable-pip-version-check install -q -c $< stable-baselines3 'gymnasium[mujoco]'
	touch $@

# This project without its dependencies, which ask for a newer MuJoCo and Warp than Isaac Lab pins; then what both lack.
$(ISAAC): constraints-isaac.txt
	@test -n "$(PYTHON312)" || { echo "Python 3.12 is needed for Isaac Lab: install it (apt, pyenv install 3.12, uv python install 3.12), then make isaac PYTHON312=/path/to/python3.12" >&2; exit 2; }
	test -x $(ISAAC_VENV)/bin/python || $(PYTHON312) -m venv $(ISAAC_VENV)
	$(ISAAC_VENV)/bin/python -m pip --disable-pip-version-check install -q -c $< $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch torchvision
	$(ISAAC_VENV)/bin/python -m pip --disable-pip-version-check install -q -c $< isaaclab \
		av hypothesis onnxruntime onnxscript pytest pyyaml rich safetensors tensorboard tensordict
	$(ISAAC_VENV)/bin/python -m pip --disable-pip-version-check install -q --no-deps -e .
	rm -f $(ISAAC_VENV)/.installed-*
	touch $@

$(CORE): | $(BIN)/python
	$(call install,.)
	touch $(CORE)

$(DEV): | $(BIN)/python
	$(call install,.[dev])
	touch $(CORE) $(DEV)
