# What a newcomer, a developer and CI call. `make help` lists it.
# On a bare Debian 12: python3 (3.11 or later), python3-venv, git, make. Packages come by pip's own settings.

PYTHON  ?= python3
VENV    := .venv
PEERS   := .venv-peers
BIN     := $(VENV)/bin
# Tests wait half of their time: for servers, for processes, for the moment something is due.
JOBS    := $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 1 ] && echo $$((2 * n)) || echo 2)
PIP     := $(BIN)/python -m pip --disable-pip-version-check
USER_EXTRAS := mysql,postgresql,video,web,watch,dashboard,otel,storage,s3,top
DEV_EXTRAS  := $(USER_EXTRAS),dev
MINUTES := 10
KINDS   := sqlite mariadb mysql postgresql

.DEFAULT_GOAL := help
.PHONY: help venv demo archive demo-recording top-pictures test test-all bench bench-revisions bench-boot bench-flame bench-galera bench-gateway bench-peers bench-reload bench-storage differential faults mutants simulate screenshots check check-style check-types check-layers check-examples check-docs format constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/.dev ## Make .venv with everything that developing needs

demo: export PEERD_DEMO_RUN_BY := make
demo: $(VENV)/.user ## Show peerd at work: two nodes transcode real video, and one worker is killed (ARGUMENTS=--open: with the dashboard)
	$(BIN)/peerd demo $(ARGUMENTS)

archive: $(VENV)/.user ## Keep a folder on two of three nodes, lose one with its disk, and find everything whole again
	$(BIN)/python examples/archive/run.py

demo-recording: $(VENV)/.dev ## Record the demo as docs/images/demo.svg, which README shows
	$(BIN)/python scripts/record-demo docs/images/demo.svg $(BIN)/peerd demo

top-pictures: $(VENV)/.dev ## Take the pictures of peerd top in docs/images, and measure what it sends
	$(BIN)/python scripts/record-top docs/images

screenshots: $(VENV)/.dev ## Take the pictures of the dashboard for the documentation, of running nodes, in Chromium
	@scripts/debian-packages
	PEERD_SCREENSHOTS=docs/images/dashboard $(BIN)/python -m pytest -q tests/pages/live/test_screenshots.py

test: $(VENV)/.dev ## Run the tests that show first what is broken, in six minutes (as root, apt installs the servers that are missing)
	@scripts/debian-packages
	@scripts/database-servers mysql
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow' $(ARGUMENTS)

test-all: $(VENV)/.dev ## Run all tests, on SQLite, MariaDB, MySQL and PostgreSQL, in half an hour
	@scripts/debian-packages
	@scripts/database-servers mysql mariadb postgresql
	$(BIN)/python -m pytest -n $(JOBS) $(ARGUMENTS)

bench: $(VENV)/.bench $(PEERS)/.installed ## Measure speed beside the bare drivers and other queues (QUICK=1: two minutes)
	$(BIN)/python -m bench $(if $(QUICK),--size quick) $(ARGUMENTS)

bench-revisions: $(VENV)/.bench ## Measure this revision beside an earlier one, in turns (BASE=revision)
	$(BIN)/python -m bench.revisions $(BASE) $(ARGUMENTS)

bench-flame: $(VENV)/.bench ## Draw where the time of a draining worker process goes, into docs/images (DATABASES="mariadb …")
	$(BIN)/python -m bench.flame $(DATABASES)

bench-peers: $(PEERS)/.installed ## Install the other queues that make bench measures, in an environment of their own

bench-reload: $(VENV)/.dev ## Replace the workers of peerd, uvicorn, gunicorn and granian under load, and count lost requests
	$(BIN)/python -m bench.reload $(ARGUMENTS)

bench-boot: $(VENV)/.dev ## Measure the boot of a node of eight processes, on each database (OF="python …" compares checkouts)
	@scripts/debian-packages
	@scripts/database-servers mysql
	$(BIN)/python -m bench.boot $(if $(OF),--of $(OF)) $(ARGUMENTS)

bench-gateway: $(VENV)/.dev ## Measure the queue server beside Debian's beanstalkd, both waiting for the disk at each write
	@scripts/debian-packages
	@scripts/database-servers mysql
	$(BIN)/python -m bench.gateway $(ARGUMENTS)

bench-storage: $(VENV)/.dev ## Measure copies, puts and gets of files beside rsync and nginx (ARGUMENTS="--folder /dev/shm --memory")
	@scripts/debian-packages bench-storage
	$(BIN)/python -m bench.storage $(ARGUMENTS)

bench-galera: $(VENV)/.dev ## Measure six worker processes on a Galera cluster of three servers, beside a plain one
	@scripts/debian-packages
	$(BIN)/python -m bench.galera $(ARGUMENTS)

faults: $(VENV)/.dev ## Kill, freeze and cut off real nodes and databases, and prove that nothing was lost (MINUTES=10 KINDS="mariadb …")
	@scripts/debian-packages
	@scripts/database-servers mysql
	$(BIN)/python -m tests.faults $(KINDS) --minutes $(MINUTES) $(ARGUMENTS)

differential: $(VENV)/.dev ## Send random scripts to the queue server and to Debian's beanstalkd, and compare (SEEDS=0:5000)
	@scripts/debian-packages
	$(BIN)/python -m tests.gateway.differential $(or $(SEEDS),0:5000) $(ARGUMENTS)

simulate: $(VENV)/.dev ## Run the simulated cluster through other seeds (SEEDS=0:20000, or one seed to see its history)
	$(BIN)/python -m tests.simulation $(or $(SEEDS),0:20000) $(ARGUMENTS)

mutants: $(VENV)/.dev ## Write sixty small defects into the code, one at a time, and count those that the tests find
	@scripts/debian-packages
	@mkdir -p .mutants
	$(BIN)/python -m tests.mutants choose .mutants/mutants.json
	$(BIN)/python -m tests.mutants map .mutants/mutants.json
	$(BIN)/python -m tests.mutants judge .mutants/mutants.json

check: $(VENV)/.dev ## Check style, types, layers, and the links, names and examples of the documentation: what CI checks
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-style check-layers check-examples check-docs

check-style: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check-types: $(VENV)/.dev
	$(BIN)/mypy --strict src tests bench

check-layers: $(VENV)/.dev
	$(BIN)/lint-imports

check-examples: $(VENV)/.dev
	$(BIN)/python -m pytest -q -p tests.support.markdown_examples src docs README.md

check-docs: $(VENV)/.dev
	$(BIN)/python scripts/check-docs

format: $(VENV)/.dev ## Format the code, and mend what can be mended without thinking
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

constraints: ## Renew constraints.txt from a fresh resolution of every extra
	scripts/renew-constraints '$(DEV_EXTRAS)'

clean: ## Remove .venv, caches and build products
	rm -rf $(VENV) $(PEERS) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find src tests bench -type d -empty -delete

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("peerd needs Python 3.11 or later, this is " + sys.version)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no virtual environment: on Debian, install python3-venv"; exit 1; }

$(VENV)/.user: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[$(USER_EXTRAS)]'
	@touch $@

$(VENV)/.dev: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[$(DEV_EXTRAS)]'
	@touch $@ $(VENV)/.user

# The C driver for MySQL is wanted and not needed: without a compiler, the pure Python one is measured alone.
$(VENV)/.bench: $(VENV)/.dev bench/peers/constraints.txt
	@scripts/debian-packages bench
	@scripts/database-servers mysql
	@$(PIP) install --quiet --constraint bench/peers/constraints.txt mysqlclient || echo "NOT INSTALLED: mysqlclient"
	@$(PIP) install --quiet --constraint bench/peers/constraints.txt py-spy
	@touch $@

$(PEERS)/.installed: $(VENV)/.bench bench/peers/requirements.txt bench/peers/constraints.txt scripts/bench-peers
	@$(PYTHON) -m venv $(PEERS)
	@scripts/bench-peers $(PEERS)
	@touch $@
