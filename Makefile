# Everything runs in .venv, made on first use by any Python from 3.11 on; PYTHON=... chooses another one.
#
#   make demo    train a digit reader by compiled gradients (run it twice)
#   make test    ruff, mypy, then the tests; fails where CUDA can be tested neither over a stand-in nor on a GPU (PULLBACK_CUDA= lets it)
#   make bench   time it beside JAX, PyTorch, Dr.Jit, Numba, C and the machine's limits on two threads, an hour; THREADS=1 on one
#   make lint    ruff and mypy alone
#   make docs    the documentation as a site, in build/site/html; make docs-full also runs the gallery and the notebooks, and stores their output
#   make gpu     on a machine with a GPU: checks, tests, sanitizer and benchmarks, in ten minutes
#   make cuda-host   build what the tests of CUDA without a GPU need: PyCUDA and a stand-in driver (about a minute, once)

PYTHON ?= python3
BIN := .venv/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2
THREADS ?= 2

.PHONY: demo test bench gpu lint docs docs-full cuda-host clean
.DELETE_ON_ERROR:

demo: .venv/.demo
	$(BIN)/python examples/digits.py

test: .venv/.test
	@$(MAKE) --no-print-directory --jobs=2 lint cuda-host
	PULLBACK_CUDA=$${PULLBACK_CUDA-any} $(BIN)/python -m pytest -q -n $(WORKERS)

bench: .venv/.bench
	$(BIN)/python -m benchmarks --threads $(THREADS) --machine --memory --plot

docs: .venv/.docs
	$(BIN)/python docs/build_site.py

docs-full: .venv/.docs
	$(BIN)/python docs/build_site.py --full

# What is found is in build/on_gpu, also if it is ended early. `--rehearse` tries it over the stand-in for a GPU.
gpu: .venv/.test
	$(BIN)/python -m tests.support.gpu_report

# Where a piece is missing it says which, and the tests that need it are skipped, unless PULLBACK_CUDA=host demands them; `make test`
# demands them or a GPU.
cuda-host: .venv/.test
	@$(BIN)/python -m tests.cuda_host || test "$$PULLBACK_CUDA" != host

# mypy finds the root folders by their installed names through a folder of links.
lint: .venv/.test
	$(BIN)/ruff check .
	@rm -rf build/types && mkdir -p build/types/pullback
	@ln -s $(addprefix ../../../,$(wildcard pullback/*)) ../../../tracer ../../../ir ../../../codegen \
	    ../../../runtime build/types/pullback/
	MYPYPATH=build/types $(BIN)/mypy -p pullback

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pullback needs Python 3.11 or later; name one by PYTHON=...")'
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml | .venv/bin/python
	$(INSTALL) -e .
	@touch $@

.venv/.test .venv/.bench .venv/.docs: .venv/.%: pyproject.toml | .venv/bin/python
	$(INSTALL) -e '.[$*]'
	@touch $@ .venv/.demo

clean:
	rm -rf .venv build *.egg-info
