# make demo | test | check | test-full-xla | mutants | bench | docs. Each makes .venv first, once; only
# python3 (3.11 or newer) and make are needed. Pinned versions are in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := src tests benchmarks experiments examples

# every method against its oracle, its minimizer, its central form and the loopback; all examples
FULL_XLA := examples or oracles or (loopback_agree and changed) or reaches_the_minimizer or is_central

.PHONY: help demo deploy-demo test check test-full-xla test-thorough test-flower mutants format bench docs clean

help:
	@echo "make demo            five things that only fedmin does, each by a run; a picture and a page"
	@echo "make deploy-demo     three sites in processes of their own, one of them killed on the way"
	@echo "make test            all tests"
	@echo "make check           format, lint and types, then all tests"
	@echo "make test-full-xla   some tests, compiled as for users"
	@echo "make test-thorough   what make test passes by: quick claims, all combinations"
	@echo "make mutants         a few dozen small changes of the library: do the tests notice?"
	@echo "make test-flower     fedmin as a Flower app, with a real SuperLink and two SuperNodes"
	@echo "make docs            the documentation, into site/"
	@echo "make bench           speed and memory against hand-written JAX"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"fedmin needs Python 3.11 or newer; $(PYTHON) is {v[0]}.{v[1]}. Try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

# a stamp each, so that a second call installs nothing
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/fedmin demo --out fedmin-demo

deploy-demo: $(VENV)/.installed
	rm -rf fedmin-deploy
	$(BIN)/fedmin deploy examples/deploy/run.toml --out fedmin-deploy --kill south
	for site in north south west; do $(BIN)/fedmin site log fedmin-deploy/sites/$$site/$$site.log --last 3; done

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(wildcard $(SOURCES))
	$(BIN)/ruff check $(wildcard $(SOURCES))
	$(BIN)/mypy
	$(MAKE) --no-print-directory test

# `make test` compiles with less of XLA's optimization, for time's sake (tests/conftest.py)
test-full-xla: $(VENV)/.installed-dev
	FEDMIN_TEST_XLA=full $(BIN)/python -m pytest -n 2 tests/test_oracles.py tests/test_common.py \
		tests/test_docs.py -k "$(FULL_XLA)" $(ARGS)

# quick claims of the papers, and the combinations that `make test` passes by
test-thorough: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m thorough $(ARGS)

# what the nearest tests do not notice is tried against all of them: hours, or less with ARGS=--near
mutants: $(VENV)/.installed-dev
	nice $(BIN)/python tests/mutants.py $(ARGS)

# Flower does not resolve beside the rest: an environment of its own, with a real SuperLink
FLOWER := .venv-flower
$(FLOWER)/.installed: $(BIN)/python pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints-flower.txt -e '.[flower]' pytest
	@touch $@

test-flower: $(FLOWER)/.installed
	$(FLOWER)/bin/python -m pytest --noconftest -o addopts= -o norecursedirs= -v tests/flower $(ARGS)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix $(wildcard $(SOURCES))
	$(BIN)/ruff format $(wildcard $(SOURCES))

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir site

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) $(FLOWER) fedmin-demo fedmin-deploy site .pytest_cache .ruff_cache .mypy_cache .hypothesis
