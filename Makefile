# Everything here works on a fresh Debian 12 as root; `make help` says what there is.
PYTHON ?= /usr/bin/python3
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help run demo test lint types check bench lab sample bundle bundle-check fresh-check clean

help:
	@echo 'make run      look at this host: install what is missing, run the daemon in the foreground (Ctrl-C ends it)'
	@echo 'make demo     the same on a libvirtd of its own with three tiny guests whose pins conflict'
	@echo 'make test     unit, contract, field and functional tests (real libvirtd, real QEMU)'
	@echo 'make check    test, lint and types: what has to pass before a change goes in'
	@echo 'make bundle   dist/compute-agent-VERSION-bundle.tar.gz for a host without compiler and internet'
	@echo 'make bundle-check   try the bundle on a bare Debian 12: install, use, remove (needs mmdebstrap; minutes)'
	@echo 'make fresh-check    make demo and make test in a clean clone on a bare Debian 12 (needs mmdebstrap; minutes)'
	@echo 'make lab      hot-plug and memory of several cells in an emulated machine (needs mmdebstrap; minutes)'
	@echo 'make bench    measurements          make sample   etc/compute-agent.conf.sample, docs/*.json'
	@echo 'make clean    remove all that these commands have made in this folder'
	@echo
	@echo 'YES=1 answers the question before packages are installed beside an existing libvirt or QEMU.'

run:
	@.ci/bootstrap packages run
	@.ci/bootstrap venv run
	@tests/lab/run

demo:
	@.ci/bootstrap packages demo
	@.ci/bootstrap venv run demo
	@tests/lab/run --demo

test:
	@.ci/bootstrap packages test
	@.ci/bootstrap venv test
	.venv/bin/python -m pytest $(ARGS)

lint types:
	@.ci/bootstrap packages build $@
	@.ci/bootstrap venv check $@
	.venv/bin/tox run -e $@

bench lab:
	@.ci/bootstrap packages test $@
	@.ci/bootstrap venv check $@
	.venv/bin/tox run -e $@ $(if $(ARGS),-- $(ARGS))

check: test lint types

sample:
	@.ci/bootstrap packages build $@
	@.ci/bootstrap venv run
	.venv/bin/oslo-config-generator --config-file etc/config-generator.conf
	.venv/bin/python -m tests.gates.schemas docs
	.venv/bin/python -m tests.gates.ledger_doc docs/ledger.md
	.venv/bin/python -m tests.gates.openapi docs

bundle:
	@.ci/bootstrap packages build $@
	@.ci/bootstrap venv check $@
	@.ci/bundle

bundle-check: bundle
	@.ci/bundle-check

fresh-check:
	@.ci/fresh-check

clean:
	@for lock in .state/run.lock .state/demo.lock; do \
	    if [ -e $$lock ] && ! flock --nonblock $$lock true; then \
	        echo "make $$(basename $$lock .lock) is running in this checkout. End it first: Ctrl-C. Nothing was removed." >&2; exit 1; \
	    fi; \
	done
	@for state in .state/libvirt .state/demo-libvirt; do if [ -d $$state ]; then tests/lab/libvirtd down $$state; fi; done
	rm -rf .venv .tox .state build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	    .import_linter_cache
	find agent tests -name __pycache__ -type d -prune -exec rm -rf {} +
