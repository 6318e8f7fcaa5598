# Two targets do everything on a machine that has only Python 3.11 with pip and venv: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo demo-papers bench-lock bench-peers bench-scale bench-quick bench-lab sim-nodes sim-leases nightly check-registries verify chaos check-views torture test debian check-style check-types check-imports unit slow bench-sim check-deep bench-check claims clean

# Five real processes and one lock; ALGORITHM=NAME chooses another algorithm.
demo: $(VENV)/demo
	$(BIN)/python examples/demo.py

# The papers side by side, simulated.
demo-papers: $(VENV)/demo
	$(BIN)/python examples/papers.py

test: $(VENV)/test debian check-style check-types check-imports unit

debian:
	scripts/debian_packages spin gcc libc6-dev etcd-server postgresql redis-server iproute2 chromium strace

check-style: $(VENV)/test
	$(BIN)/ruff format --check
	$(BIN)/ruff check

check-types: $(VENV)/test
	$(BIN)/mypy
	$(BIN)/basedpyright --level error

check-imports: $(VENV)/test
	$(BIN)/lint-imports

# One more worker than cores: many tests wait for leases to run out.
unit: $(VENV)/test
	$(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal -m "not slow" --durations=10

# The few tests that take half a minute and more each.
slow: $(VENV)/test
	scripts/debian_packages strace
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow --timeout 900

bench-lock: $(VENV)/test
	$(BIN)/peerlock bench lock

# Whole nodes, simulated: ten thousand seeds, two minutes.
sim-nodes: $(VENV)/test
	$(BIN)/peerlock sim-nodes --seeds 1..10000

# The view change in every interleaving, and without each of its rules.
check-views: $(VENV)/test
	$(BIN)/peerlock check-views --deep

# Ten real processes, killed, stopped and started again, a minute a seed.
torture: $(VENV)/test
	$(BIN)/python -m benchmarks.torture --seconds 60 --seeds 1,2,3

# Whole nodes with leases, voters and stores, on two cores: half an hour; and all night long, in pieces of that.
sim-leases: $(VENV)/test
	$(BIN)/peerlock sim-nodes --registry leases --seeds 1..50000

nightly: $(VENV)/test
	$(BIN)/python scripts/nightly.py --minutes 60

# Voters and stores in every interleaving, and without each of their rules: ten minutes.
check-registries: $(VENV)/test
	$(BIN)/peerlock check-registries --deep

# Real processes under real faults: ten minutes with voters, ten with etcd.
verify: $(VENV)/test
	scripts/debian_packages etcd-server iproute2
	$(BIN)/peerlock verify --registry embedded --seconds 600
	$(BIN)/peerlock verify --registry etcd --seconds 600

# One host, with faults between system calls: ten minutes over six seeds.
chaos: $(VENV)/test
	scripts/debian_packages strace
	for seed in 1 2 3 4 5 6; do $(BIN)/peerlock verify --registry host --faults syscalls --seconds 100 --seed $$seed || exit 1; done

# Many processes of one host, and what stops them: a quarter of an hour.
bench-scale: $(VENV)/test
	scripts/debian_packages redis-server postgresql
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[peers]'
	mkdir -p out
	$(BIN)/python -m benchmarks scale --save out/scale.json --plot out/scale.svg
	$(BIN)/python -m benchmarks stuck --save out/stuck.json

# This lock beside what people use today: installs their servers and clients, and takes a quarter of an hour.
bench-peers: $(VENV)/test
	scripts/debian_packages redis-server postgresql zookeeper etcd-server nats-server
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[peers]'
	mkdir -p out
	$(BIN)/python -m benchmarks peers --plot out/peers.svg --save out/peers.json
	$(BIN)/python -m benchmarks curves --plot out/curves.svg --save out/curves.json
	$(BIN)/python -m benchmarks takeover --save out/takeover.json
	PYTHONPATH=. $(BIN)/python scripts/profile_handover.py --json out/profile.json

# How long a picture of the lab takes, in a browser.
bench-lab: $(VENV)/test
	scripts/debian_packages chromium
	$(BIN)/python scripts/bench_lab.py

# A few ratios beside the stored ones; fails if one is much worse.
bench-quick: $(VENV)/test
	PYTHONPATH=. $(BIN)/python scripts/bench_quick.py

bench-sim: $(VENV)/test
	$(BIN)/python -m benchmarks sim

# The long explorations: half an hour on two cores. The table is part of the documentation.
check-deep: $(VENV)/test
	$(BIN)/peerlock verdicts --out docs/reference/verdicts.md

# Every claim of the papers, with large explorations; the tables in docs/papers are made anew, and a report in out/claims.
claims: $(VENV)/test
	$(BIN)/peerlock claims --full --out out/claims --docs docs/papers

bench-check: $(VENV)/test
	scripts/debian_packages spin gcc libc6-dev
	$(BIN)/python -m benchmarks check

# What is installed is a function of these two files; a stamp says that it has been done.
$(VENV)/demo: pyproject.toml constraints.txt
	$(PYTHON) scripts/require_python.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[cli,fast]'
	touch $@

$(VENV)/test: $(VENV)/demo
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[cli,bench,fast,metrics,certs,etcd,lab,peers]' $$($(BIN)/python scripts/test_tools.py)
	touch $@

clean:
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
