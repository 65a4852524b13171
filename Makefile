# gpt-tune. `make run` and `make test` are all a fresh machine needs; `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help run demo test test-full test-slurm-matrix lint types bench cluster lock clean

PY := .venv/bin/python
WORKERS ?= 2
# What failed is tried once more, alone: terminal and Slurm tests have deadlines that a busy machine can miss.
AGAIN = { echo "Trying what failed once more, one at a time."; $(PY) -m pytest --last-failed --last-failed-no-failures none -m "not slow"; }

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/|/' | while IFS='|' read -r name text; do printf '  make %-19s%s\n' "$$name" "$$text"; done

.venv/.run: pyproject.toml requirements.lock scripts/setup.sh
	@sh scripts/setup.sh requirements.lock
	@touch .venv/.run

.venv/.dev: pyproject.toml requirements-dev.lock scripts/setup.sh
	@sh scripts/setup.sh requirements-dev.lock
	@touch .venv/.run .venv/.dev

run: .venv/.run ## open the wizard (sets everything up the first time)
	@$(PY) -m tui $(ARGS)

demo: .venv/.run ## plan, submit and follow a real job without a keyboard, and print the result
	@$(PY) scripts/demo.py

test: .venv/.dev ## all tests, with a real private Slurm cluster (under 15 minutes)
	@sh scripts/install-test-tools.sh
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" $(ARGS) || $(AGAIN)

test-full: .venv/.dev ## the tests that take longer, too
	@sh scripts/install-test-tools.sh full
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(ARGS) || $(AGAIN)

# What every version of Slurm must pass. Versions beside this machine's own need root and debootstrap.
test-slurm-matrix: .venv/.dev ## the Slurm tests on Debian's three versions (VERSIONS="22.05 24.11 26.05")
	@sh scripts/install-test-tools.sh full
	@$(PY) -m tests.cluster.matrix $(VERSIONS) -- $(ARGS)

lint: .venv/.dev ## ruff, the import contract, shell syntax
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@.venv/bin/lint-imports
	@for f in scripts/*.sh .ci/run; do sh -n "$$f" || exit 1; done

types: .venv/.dev ## mypy, strict
	@$(PY) -m mypy

bench: .venv/.dev ## measured comparisons, each printing a ratio
	@for f in benchmarks/*.py; do echo "== $$f"; $(PY) "$$f" || exit 1; done

cluster: .venv/.dev ## a shell inside a private test cluster (SLURM_CONF set); leave it to stop the cluster
	@sh scripts/install-test-tools.sh
	@$(PY) -m tests.cluster shell

lock: .venv/.dev ## write the lock files anew from pyproject.toml
	@$(PY) -m pip install --quiet uv
	@$(PY) -m uv pip compile pyproject.toml --group build --universal --python-version 3.10 --generate-hashes --no-header -q -o requirements.lock
	@$(PY) -m uv pip compile pyproject.toml --group build --group dev --universal --python-version 3.10 --generate-hashes --no-header -q -o requirements-dev.lock -c requirements.lock

clean: ## remove the environment and caches
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
