# Floodwall's tasks. Each installs what it lacks on Debian (scripts/setup); building needs only Go.

PREFIX  ?= /usr/local
DESTDIR ?=
GO      := scripts/go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
SUDO    := $(if $(filter-out 0,$(shell id -u)),sudo)

# What the binary is made of. A commit may change its version and nothing else.
SOURCES := go.work go.work.sum go.mod go.sum $(wildcard .git/logs/HEAD) \
	$(shell find cmd policy internal -type f -not -name '*_test.go' -not -path '*/testdata/*' 2>/dev/null)

# Packages whose tests need no kernel of their own architecture. XDP, nftables and iptables on arm64 are not tested: QEMU's
# user mode has no bpf(2), and no machine of that architecture runs our tests.
# A test that starts itself again cannot do so there.
UNPORTABLE := ^TestDynamicKilledWriter$$
PORTABLE := ./policy ./internal/model/ir ./internal/model/packet ./internal/model/addrs ./internal/engine/ban ./internal/model/cost ./internal/host/facts

export PATH := $(PATH):/usr/sbin:/sbin
.DELETE_ON_ERROR:
.PHONY: help build demo demo-fleet soak test test-race test-long test-nightly test-reach test-fresh test-kernels test-hosts test-fast test-arm64 prove bench bench-guard bench-history verifier readme-bench generate format lint install dist packages source-package release repository rebuild test-release clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' Makefile

PROGRAMS := floodwall floodwall-lab floodwall-hub floodwall-bgp

build: $(PROGRAMS) ## Build the static binaries ./floodwall, ./floodwall-lab, ./floodwall-hub and ./floodwall-bgp

$(PROGRAMS) &: $(SOURCES)
	@scripts/setup build
	@scripts/build '$(VERSION)' .

demo: build ## Show a web server under a flood, without and with Floodwall
	@scripts/setup demo
	$(SUDO) ./floodwall-lab demo

demo-fleet: build ## Show three web servers that share their bans, one of them attacked
	@scripts/setup demo
	$(SUDO) ./floodwall-lab demo --fleet

bench: build ## Measure on this machine; EXPERIMENTS="drop sets" chooses
	@scripts/setup bench
	$(SUDO) ./floodwall-lab bench $(EXPERIMENTS)

soak: ## Load the daemon in every way at once and watch its memory; SOAK=10m is shorter than an hour
	@scripts/setup build test
	FLOODWALL_SOAK=$(or $(SOAK),1h) FLOODWALL_LONG=1 FLOODWALL_TEST_ROOT=1 \
		$(GO) test $(if $(SUDO),-exec '$(SUDO) -E') -count=1 -timeout 5h -v -run 'TestSoak$$' ./cmd/floodwall

bench-guard: build ## Check that no kind of packet executes more instructions than .ci/instructions.json allows
	$(SUDO) ./floodwall-lab bench guard .ci/instructions.json

prove: ## Prove that the entries and rulesets of all example policies, of 500 random ones and of the guides decide as their policies say; PROVE=50 is fewer
	@scripts/setup build prove
	FLOODWALL_PROVE=$(or $(PROVE),500) FLOODWALL_MUTANTS=$(or $(MUTANTS),420) FLOODWALL_TEST_ROOT=1 \
		$(GO) test $(if $(SUDO),-exec '$(SUDO) -E') -vet=off -count=1 -timeout 12h -v ./cmd/floodwall-lab/prove

bench-history: build ## Add what this commit costs to docs/bench/history.jsonl; PROGRAM=DIR adds the ratios of a run of bench program
	$(SUDO) ./floodwall-lab bench history docs/bench/history.jsonl $(if $(PROGRAM),--program $(PROGRAM))

verifier: ## Renew .ci/verifier.json, what verifiers of kernels have to do for the largest policies, as root
	@scripts/setup build test kernels
	@scripts/verifier

readme-bench: ## Write the README's chart and table from docs/bench; FROM=DIR stores a run's results there first
	$(GO) run ./tools/docs readme $(FROM)

test: ## Run all tests, as root (or with sudo); none may be skipped
	@scripts/test

test-race: ## Run the tests of packages with goroutines with Go's race detector
	@scripts/race

test-long: test-arm64 ## The same with the long runs: more random cases with new seeds, more kills, more swaps; and test-arm64
	@FLOODWALL_LONG=1 scripts/test -timeout 6h

test-nightly: ## The same as test with a new seed for all that is random, which it prints, then test-race, also with end-to-end tests, and fuzz targets for an hour; FUZZ=10m is shorter
	@seed=$$(od -An -N8 -tu8 /dev/urandom | tr -d ' '); echo "FLOODWALL_SEED=$$seed"; status=0; \
		FLOODWALL_SEED=$$seed scripts/test || status=$$?; scripts/race || status=$$?; scripts/race -programs || status=$$?; scripts/fuzz $(or $(FUZZ),1h) || status=$$?; exit $$status

test-reach: ## Send a million frames of an adversary past random policies on each target, and search forged flows; FRAMES=10000 sends fewer
	@scripts/setup build test
	FLOODWALL_LONG=1 FLOODWALL_FRAMES=$(FRAMES) FLOODWALL_TEST_ROOT=1 \
		$(GO) test $(if $(SUDO),-exec '$(SUDO) -E') -count=1 -timeout 3h -v -run TestReach ./e2e/traffic

test-fresh: ## Run the README's two commands on a Debian 12 made for it, which has neither caches nor tools of this machine
	$(SUDO) scripts/fresh

test-kernels: ## Test programs and protected connections on Debian's kernels 6.1 and 6.12, in QEMU; KERNELS=6.1 chooses
	@scripts/kernels $(KERNELS)

test-hosts: ## Take policies through their lives on hosts as they are, on each target, and in guests: before a release
	@scripts/hosts

test-release: ## Make a release with keys of its own, twice, install it on Debian 12 and 13, and build the source package on Debian 13: the gate before a release, half an hour
	@scripts/setup build generate release source test-release
	FLOODWALL_TEST_ROOT=1 $(GO) test $(if $(SUDO),-exec '$(SUDO) -E') -vet=off -count=1 -timeout 2h -v -tags nethttpomithttp2,release -run TestRelease ./e2e/release

test-fast: ## Run the tests that need no root, in less than a minute; make test begins with them
	@scripts/test -fast

test-arm64: ## Run the tests of the packages that need no kernel as arm64 programs, in QEMU's user mode
	@scripts/setup build arm64
	GOARCH=arm64 $(GO) test -count=1 -vet=off -skip '$(UNPORTABLE)' -exec qemu-aarch64 $(PORTABLE)

generate: ## Make the committed generated files anew: the compiled C and its Go side
	@scripts/setup build generate
	$(GO) generate work

format: ## Format the Go and the C
	@scripts/setup build lint
	$$($(GO) env GOROOT)/bin/gofmt -w cmd e2e internal policy test tools
	clang-format-19 -i bpf/*.c bpf/*.h

lint: ## Check format, vet, staticcheck and the rules of this project
	@scripts/setup build generate lint
	@scripts/lint

build/share: $(PROGRAMS) $(shell find docs contrib -type f 2>/dev/null) $(wildcard *.md) packaging/copyright
	@scripts/share . $@

install: build build/share ## Install binaries, man pages, completions and documents under PREFIX, below DESTDIR
	install -D -m 755 -t '$(DESTDIR)$(PREFIX)/bin' $(PROGRAMS)
	cd build/share && for f in man/*.[1-8]; do install -D -m 644 "$$f" "$(DESTDIR)$(PREFIX)/share/man/man$${f##*.}/$${f##*/}"; done
	cd build/share && find *sh* doc -type f | while read -r f; do install -D -m 644 "$$f" "$(DESTDIR)$(PREFIX)/share/$$f"; done

dist: build build/share ## Make release archives for amd64 and arm64 with their checksums in build/dist
	@scripts/dist $(VERSION)

packages: ## Make .deb and .rpm for amd64 and arm64 with their checksums in build/packages
	@scripts/setup build
	@scripts/packages '$(VERSION)'

source-package: ## Make Debian's source package in build/source
	@scripts/setup build source
	@scripts/source '$(VERSION)'

release: ## Make a signed release of the tag VERSION, and add it to the apt repository (CONTRIBUTING.md says how)
	@scripts/setup build generate release
	@scripts/release '$(VERSION)'

repository: ## Sign the apt repository in build/release/apt again, for another 90 days, with all releases that are in build/release
	@scripts/setup release
	@scripts/repository build/release/apt $(wildcard build/release/v*/*.deb)

rebuild: ## Make the files of the release VERSION without signatures in build/rebuild, to compare them with the published ones
	@scripts/setup build generate
	@scripts/release -n '$(VERSION)'

clean: ## Remove what was built
	rm -rf $(PROGRAMS) build
