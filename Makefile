# make quickstart | test | test-all | test-slow | test-documents | test-no-tensorflow | test-peers
# make test-older | fuzz | check | generate | format | docs | docs-live | dist | lock | clean
# Another Python: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
# Newer versions than the locked ones, for a Python that those have no wheels for: CONSTRAINTS=
CONSTRAINTS ?= -c constraints.txt
export KERAS_BACKEND ?= tensorflow
export TF_CPP_MIN_LOG_LEVEL ?= 3

# JAX and torch, without TensorFlow. This torch has a build for CPUs alone.
VENV_NO_TENSORFLOW ?= .venv-no-tensorflow
torch := torch==2.13.0

# Libraries whose answers ours are compared with. PyTorch is also Keras' third backend.
VENV_PEERS ?= .venv-peers
peers := $(torch) transformers==5.23.0 accelerate==1.15.0 datasets==5.2.0 \
	sentence-transformers==6.2.0 peft==0.21.2 mteb==2.26.24 beir==2.2.0 ranx==0.3.21 \
	faiss-cpu==1.15.1 openvino==2026.4.1 openpyxl==3.1.5

# Libraries that need older versions of TensorFlow, protobuf or transformers: the Model Garden,
# Apache Beam, and those that read ONNX and OpenVINO folders. The Model Garden asks for 127 packages;
# the modules that we use import these.
VENV_OLDER ?= .venv-older
older := tensorflow==2.20.0 tensorflow-text==2.20.1 tf_keras gin-config tensorflow-hub 'setuptools<82' \
	apache-beam==2.77.0 $(torch) transformers==4.57.6 optimum-onnx[onnxruntime]==0.1.0 \
	optimum-intel[openvino]==1.27.0 openvino==2026.4.1 nncf==3.4.0 \
	sentence-transformers==5.7.0 fastembed==0.9.1
garden_models := tf-models-official==2.20.0
transformers_js := @huggingface/transformers@4.3.2

# What our entity F1 is held to. There is only its source archive, which the newest setuptools_scm
# does not build; so that is neither in setup.cfg nor fetched by the build itself.
seqeval := seqeval==1.2.2
seqeval_build := 'setuptools_scm<8' wheel

bin := $(VENV)/bin
installed := $(VENV)/installed

.PHONY: quickstart test test-all test-slow test-documents test-no-tensorflow test-peers test-older \
	fuzz check generate format docs docs-live dist lock clean
.DELETE_ON_ERROR:

quickstart: $(installed)
	$(bin)/python examples/quickstart.py

# Tests of one file stay together, since they share what is slow to make. The files that take longest
# start first (see tests/conftest.py), so that no worker runs alone at the end. At the end of the
# output, -rsfE lists skipped and failed tests.
parallel := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder -rsfE
pytest := $(bin)/python -m pytest $(parallel)

test: $(installed)
	$(pytest) -m "not slow and not browser and not peers and not documents"

test-all: $(installed)
	$(pytest) -m "not peers"

# What `make test` leaves out, without the programs in the documentation, which take half an hour.
test-slow: $(installed)
	$(pytest) -m "(slow or browser) and not peers and not documents"

# The programs in the documentation.
test-documents: $(installed)
	$(pytest) -m "documents and not peers"

# The tests of what works without TensorFlow, with each of the other backends.
no_tensorflow := $(parallel) -m "not slow and not peers and not documents" tests/test_without_tensorflow.py tests/test_fused_attention.py \
	tests/training/test_reproducibility.py tests/training/test_gradient_caching.py \
	tests/tasks tests/data tests/pipelines tests/text/test_python_tokenizer.py tests/text/test_words.py

test-no-tensorflow: $(VENV_NO_TENSORFLOW)/installed
	KERAS_BACKEND=jax $(VENV_NO_TENSORFLOW)/bin/python -m pytest $(no_tensorflow)
	KERAS_BACKEND=torch $(VENV_NO_TENSORFLOW)/bin/python -m pytest $(no_tensorflow)

# The torch backend, and live comparisons with transformers.
test-peers: $(VENV_PEERS)/installed
	$(VENV_PEERS)/bin/python -m pytest $(parallel) -m peers

# Exports in the libraries that read them, on the torch backend; then the Model Garden and Apache
# Beam, whose own code warns.
test-older: $(VENV_OLDER)/installed
	KERAS_BACKEND=torch HF_HUB_OFFLINE=1 $(VENV_OLDER)/bin/python -m pytest $(parallel) -m "not peers" \
	    tests/consumers tests/cli/test_exports.py tests/pipelines/test_graph_pipeline.py tests/exporting/test_onnx_export.py \
	    tests/properties/test_engines.py::test_openvino_answers_as_the_keras_model \
	    tests/properties/test_engines.py::test_graphs_in_int8 \
	    'tests/test_docs.py::test_programs[docs/deploy/onnx.md]' \
	    'tests/test_docs.py::test_programs[docs/deploy/openvino.md]'
	$(VENV_OLDER)/bin/python -m pytest -W ignore tests/garden tests/bulk

# Mutated files for every reader, each in a process of its own. More of them:
# make fuzz FUZZ="--files 10000 --seed 1"
FUZZ ?= --files 500 --seconds 60
fuzz: $(installed)
	$(bin)/python -m tests.security.fuzz $(FUZZ)

# The programs of these pages fit the column of the site, which has 90 characters.
pages := --line-length 90 README.md README.ko.md docs/*/*.md

check: $(installed)
	$(bin)/ruff format --check
	$(bin)/ruff format --check $(pages)
	$(bin)/ruff check
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/codespell
	$(bin)/python docs/check_prose.py
	$(bin)/python -m tests.count_lines --check
	$(bin)/python -m pytest --quiet -m generated tests/test_docs.py tests/test_notebooks.py tests/test_package.py

# Warnings are errors: broken links, unknown names in docstrings, pages that no table of contents has.
docs: $(installed)
	$(bin)/sphinx-build -W -n --keep-going --jobs auto docs build/docs

# Run it again after a change: Sphinx rebuilds the changed pages only.
docs-live: docs
	$(bin)/python -m http.server --bind 127.0.0.1 --directory build/docs 8000

# Generated files: notebooks, pictures, the table of modules. `make check` fails if a notebook, the
# table or a text of a picture is out of date.
generate: $(installed)
	$(bin)/python docs/notebooks.py
	$(bin)/python docs/pictures.py
	$(bin)/python -m tests.module_map

format: $(installed)
	$(bin)/ruff format
	$(bin)/ruff format $(pages)
	$(bin)/ruff check --fix

# The wheel and the source archive, in dist/.
dist:
	rm -rf build dist $(VENV)-dist
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	$(VENV)-dist/bin/python -m build
	$(VENV)-dist/bin/python -m twine check --strict dist/*
	rm -rf $(VENV)-dist

# Run it when a dependency in setup.cfg changes, or to move to newer versions. The environment is
# then brought up to date by the next target that needs it.
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	echo '# Made by "make lock"; do not edit. For Python 3.11 and later.' > constraints.txt
	$(VENV)-lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	    --extra dev --extra docs --no-header --no-annotate --no-emit-index-url setup.cfg >> constraints.txt
	echo '# Made by "make lock"; do not edit. For `make test-older`.' > constraints-older.txt
	printf '%s\n' $(older) | $(VENV)-lock/bin/uv pip compile --quiet --no-config --python-version 3.11 \
	    --extra beam --extra openvino --no-header --no-annotate --no-emit-index-url setup.cfg - \
	    >> constraints-older.txt
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV_NO_TENSORFLOW) $(VENV_PEERS) $(VENV_OLDER) $(VENV)-lock $(VENV)-dist build dist
	rm -rf *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the last thing venv installs: without it the environment is half made.
$(bin)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.version_info >= (3, 11) or \
	    sys.exit(f"keras3-bert needs Python 3.11 or later; $(PYTHON) is {v}")'
	$(PYTHON) -m venv --clear $(VENV)

$(installed): setup.cfg pyproject.toml constraints.txt | $(bin)/pip
	@echo "Installing the locked dependencies into $(VENV) (4 GB on disk; a few minutes)"
	@$(bin)/python -m pip install -qq --disable-pip-version-check $(CONSTRAINTS) -e '.[dev,docs,serve]'
	@{ $(bin)/python -m pip install -qq --disable-pip-version-check $(CONSTRAINTS) $(seqeval_build) && \
	    $(bin)/python -m pip install -qq --disable-pip-version-check --no-deps \
	        --no-build-isolation $(seqeval); } || echo "Without seqeval its test is skipped"
	@touch $@

$(VENV_PEERS)/installed: setup.cfg pyproject.toml constraints.txt
	@echo "Installing the peers into $(VENV_PEERS) (6 GB on disk; a few minutes)"
	@$(PYTHON) -m venv --clear $(VENV_PEERS)
	@$(VENV_PEERS)/bin/python -m pip install -qq --disable-pip-version-check $(CONSTRAINTS) \
	    -e '.[dev]' $(peers)
	@touch $@

# What the tests need besides a backend.
test_packages := pytest pytest-xdist pandas

$(VENV_NO_TENSORFLOW)/installed: setup.cfg pyproject.toml constraints.txt
	@echo "Installing JAX and torch, without TensorFlow, into $(VENV_NO_TENSORFLOW) (2 GB on disk; a minute)"
	@$(PYTHON) -m venv --clear $(VENV_NO_TENSORFLOW)
	@$(VENV_NO_TENSORFLOW)/bin/python -m pip install -qq --disable-pip-version-check $(CONSTRAINTS) \
	    -e '.[jax,torch,onnx]' $(torch) $(test_packages)
	@touch $@

# npm is optional: without it, the test of transformers.js is skipped.
$(VENV_OLDER)/installed: setup.cfg pyproject.toml constraints-older.txt
	@echo "Installing libraries that need older versions into $(VENV_OLDER) (5 GB on disk; some minutes)"
	@$(PYTHON) -m venv --clear $(VENV_OLDER)
	@$(VENV_OLDER)/bin/python -m pip install -qq --disable-pip-version-check \
	    -c constraints-older.txt -e '.[beam,openvino]' $(older) $(test_packages)
	@$(VENV_OLDER)/bin/python -m pip install -qq --disable-pip-version-check --no-deps $(garden_models)
	@npm install --silent --ignore-scripts --prefix $(VENV_OLDER)/node $(transformers_js) || \
	    echo "Without npm the test of transformers.js is skipped"
	@touch $@
