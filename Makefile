# make up      install, start proxy, edge worker and origin on loopback, translate once per tier
# make test    install what the tests need, check style, types and architecture, run all tests
# make bench   run the benchmarks;  make bench-check  compare the committed results with their floors
#
# TORCH_INDEX  optional pip index for torch alone, e.g. PyTorch's CPU index on a machine without a GPU
# PORT         proxy port (0 = any free port)
PYTHON      ?= python3
TORCH_INDEX ?=
PORT        ?= 8100
VENV        := .venv
BIN         := $(VENV)/bin
TORCH       := torch==2.13.0
SERVE       := proxy,edge,origin,pt

.PHONY: up test check bench bench-check clean

up: $(VENV)/serve.ok
	@exec $(BIN)/nearsay up --port $(PORT)

test: check
	$(BIN)/python -m pytest

check: $(VENV)/test.ok
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/test.ok
	$(BIN)/python -m bench run

bench-check: $(VENV)/test.ok
	$(BIN)/python -m bench check

$(VENV)/torch.ok: Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@touch $@

$(VENV)/serve.ok: $(VENV)/torch.ok pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[$(SERVE)]'
	@touch $@

$(VENV)/test.ok: $(VENV)/torch.ok pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[$(SERVE),distill,test]'
	@touch $@ $(VENV)/serve.ok

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
