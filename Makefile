# `make run` and `make test` are all that a newcomer needs; `make help` lists
# the rest.
PREFIX ?= /usr/local
CARGO ?= cargo

.PHONY: help run test lint bench install clean reference

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

reference: ## fetch Debian's C daemon, to compare with
	@tests/fetch-reference.sh
