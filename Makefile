# Everything runs from the environment .venv, which `make install` makes; nothing outside this folder changes.
# Variables may be set on the command line: make install PYTHON=python3.12, make test TEST_FLAGS="-k gpt2"

PYTHON      ?= python3
JOBS        ?= 2
DEMO_FLAGS  ?= --workers 2 --tolerance 1e-2 --seconds 30
TEST_FLAGS  ?=
SCHEDULES   ?= 4000
# Another commit simulates other seeds of the first 100,000; the command prints which. FIRST=0 takes those from 0 on.
FIRST       ?= $(shell .venv/bin/python -m tests.suite.share $(SCHEDULES))
FUZZ_SECONDS ?= 600
BENCH_FLAGS ?=
RECORD      ?=

BIN       := .venv/bin
CREATED   := .venv/.created
INSTALLED := .venv/.installed
PEERS     := .venv/.peers
DOCS      := .venv/.docs
# Isolated mode and no user site: only what the lock names is seen.
PIP       := $(BIN)/python -I -m pip --disable-pip-version-check --no-input
PYTEST    := $(BIN)/python -m pytest
# Besides tests/peers: the files with tests that skip themselves where an optional package is absent, as in `make test`. Of these
# files --only-optional runs no other test again.
PEER_TESTS = tests/peers $(shell grep -rl --include='*.py' --exclude-dir=peers importorskip tests)

# Without bytecode every process of the tests would compile all of their files anew, which takes it twenty seconds.
unexport PYTHONDONTWRITEBYTECODE

# What `make check` runs, and so `make test` does not.
CHECKS = tests/test_layers.py tests/test_house_rules.py tests/suite/test_rooms.py

# What XLA runs: kernels and what they stand in. A machine with a GPU brings its own jax, which no lock here names, and need not
# have what the wire is made of. All of it, which took 289 s on 16 cores: make test-gpu GPU_TESTS="$(ALL_GPU_TESTS)"
GPU_TESTS = tests/kernels tests/ops tests/backends tests/nn tests/optimizers tests/models tests/inference \
	tests/planning/workbench/test_on_a_gpu.py --ignore=tests/kernels/native
ALL_GPU_TESTS = tests/ir tests/ops tests/autodiff tests/backends tests/kernels tests/planning tests/nn tests/optimizers \
	tests/models tests/inference tests/rewrite tests/training tests/test_tensor.py tests/test_tracing.py \
	--ignore=tests/training/data
WITHOUT_WIRE = $(shell $(PYTHON) -c 'import capnp' 2>/dev/null || echo $(WIRE_TESTS:%=--ignore=%))
WIRE_TESTS = tests/planning/test_libraries.py tests/ops/test_records.py tests/kernels/native/test_building.py tests/kernels/native/test_native.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-times test-facts test-runs simulated-share test-schedules fuzz test-peers test-gpu test-long check format bench docs wheel lock clean

help: ## List these commands
	@echo "PCP, the Planetary Compute Protocol. Start with: make demo"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Make .venv with PCP and the locked versions of all it needs

demo: install ## Train a small GPT-2 on Shakespeare with one Shepherd and two Workers
	$(BIN)/pcp train --model gpt2-nano $(DEMO_FLAGS)

test: install ## Run the tests (no torch needed)
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not long and not runs" --ignore=tests/peers $(CHECKS:%=--ignore=%) --times=build/test_times.json $(TEST_FLAGS)

test-times: install ## Print what the last `make test` took, by file and room, beside the budgets; RECORD=record keeps it
	@$(BIN)/python -m tests.suite.budgets $(RECORD)

test-facts: install ## Compare all facts of programs, choices and searches with those that are recorded, and name the changes
	PCP_TEST_SHARE=none $(PYTEST) -q -n $(JOBS) --dist worksteal -m "" tests/replay $(TEST_FLAGS)

test-runs: install ## Run the tests of whole runs whose processes are killed, audited or kept out
	$(PYTEST) -n $(JOBS) --dist worksteal -m runs tests/distributed $(TEST_FLAGS)

simulated-share: install ## Tell which part of the code that runs in production also runs under simulation
	$(BIN)/python -m tests.distributed.simulator.share

test-schedules: install ## Simulate SCHEDULES=4000 seeded schedules of faults in distributed runs, others for every commit
	$(BIN)/python -m pcp.distributed.simulator --first $(FIRST) --seeds $(SCHEDULES) --jobs $(JOBS)

fuzz: install ## Fuzz the state machines of distributed runs for FUZZ_SECONDS=600 with any messages in any order
	$(BIN)/python -m pcp.distributed.simulator.fuzz --seconds $(FUZZ_SECONDS)

test-peers: $(PEERS) ## Install torch, transformers and Ray, run the tests that need them
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not long" --only-optional $(PEER_TESTS) $(TEST_FLAGS)

test-gpu: ## Verify each family of kernels on the GPU of this machine, with its own jax and pytest (JOBS=14 at a time)
	PCP_TEST_PLATFORM=cuda XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest -q -n $(JOBS) -p no:benchmark -p tests.suite.on_gpu -m "not long" $(GPU_TESTS) $(WITHOUT_WIRE) $(TEST_FLAGS)

test-long: $(PEERS) ## Run the tests that take minutes each, and every case of the wide tables, all compiled for speed
	PCP_TEST_SHARE=none PCP_TEST_OPTIMISED=1 $(PYTEST) -m long --timeout 3600 $(TEST_FLAGS)

check: install ## Lint, formatting, strict types, import layers, house rules, budgets of the tests, lines of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n $(JOBS)
	$(PYTEST) -q $(CHECKS)

format: install ## Rewrite the files as ruff wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## Measure PCP beside its peers
	$(BIN)/python -m benchmarks $(BENCH_FLAGS)

docs: $(DOCS) ## Build the documentation as web pages in build/docs
	$(BIN)/python -m sphinx -q -b html docs build/docs
	@echo "Open build/docs/index.html"

wheel: install ## Build the wheel in dist, with the native kernels for every kind of vector unit, named by the oldest glibc it runs on
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	rm -rf build/wheel
	@ls dist/*.whl

# uv reads no pip configuration: where packages come from an index of your own, set UV_DEFAULT_INDEX for this command.
lock: install ## Choose versions anew, within pyproject.toml; LOCK_FLAGS=--upgrade takes the newest
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate $(LOCK_FLAGS) \
		--extra dev --extra web pyproject.toml --output-file requirements/lock.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate $(LOCK_FLAGS) \
		--extra peers --extra ray --extra iree --extra equality pyproject.toml requirements/torch_needs.in --constraint requirements/lock.txt \
		--output-file requirements/peers.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate $(LOCK_FLAGS) \
		--extra docs pyproject.toml --constraint requirements/lock.txt --output-file requirements/docs.txt

clean: ## Remove .venv and everything else that was made; your runs/ stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "PCP needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not installed)."; \
		echo "Install one (Debian, Ubuntu: apt install python3 python3-venv) and name it: make install PYTHON=python3.12"; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: its venv or ensurepip module is missing."; \
		echo "Install it (Debian, Ubuntu: apt install python3-venv; as root or with sudo) and run make again."; \
		exit 1; }
	@echo "Making .venv; with the packages to download it takes a minute or two."
	$(PYTHON) -m venv --clear .venv
	@touch $@

$(INSTALLED): requirements/lock.txt pyproject.toml $(CREATED)
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/lock.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -I -m compileall -q src/pcp  # confined processes cannot write bytecode, and take twice as long to start without it
	@touch $@

$(PEERS): requirements/peers.txt requirements/install_torch.py $(INSTALLED)
	@# Their bytecode comes with use: compiling all of it would take as long as all else of this.
	$(BIN)/python -I requirements/install_torch.py
	$(PIP) install --quiet --no-compile --require-hashes --no-deps -r requirements/peers.txt
	@touch $@

$(DOCS): requirements/docs.txt $(INSTALLED)
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/docs.txt
	@touch $@
