# Everything needs Go (with a C compiler for the race detector), git and make. The
# tools beside them are pinned here or in scripts/, and Go fetches them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

GO          ?= go
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS     := -X main.version=$(VERSION)

# FUZZTIME is how long each fuzz target runs under "make fuzz" and "make check".
FUZZTIME    ?= 30s
# BENCH selects benchmarks, ROUNDS and BENCHTIME say how often and how long each of them
# runs, BASE is the commit to compare with if not the merge base.
BENCH       ?= .
ROUNDS      ?= 6
BENCHTIME   ?= 0.2s
BASE        ?=
# Tests of TIMED packages run real clusters against the clock: three packages at a time, which
# mostly wait, so that they disturb each other no more than they mean to. The others have no
# clock but their own, and share the cores. TIMELESS leaves out fsm, which is tested apart.
CLOCKED     := ./server/web ./cmd/qlock ./cmd/qlockd ./server
# FAULTS hurt processes, which are built without the race detector: that sees only the load, which
# test/virtual has as well. So they run without it, but for a line of "make check". So do EXAMPLES,
# whose database takes longer to compile than all the rest.
FAULTS      := ./test/process ./test/hostile ./test/disk
EXAMPLES    := ./test/migrate ./test/examples/...
TIMED       := $(CLOCKED) $(FAULTS) $(EXAMPLES)
TIMELESS     = $$($(GO) list ./... | grep -vFx "$$($(GO) list $(TIMED) ./fsm $(1))")
# SERIAL packages and SERIAL_TESTS of SERIAL_IN compute in one goroutine, so that there is no race to
# detect: "make test" runs them without the detector, which slows them down about tenfold.
SERIAL      := ./internal/lint ./scripts/bench ./scripts/demo/generate ./server/replica/failover \
               ./test/model ./test/mutants ./test/mutation ./transport/wire
SERIAL_IN   := ./server/replica ./server/replica/segment
SERIAL_TESTS := ^(TestCutFiles|TestFlippedBits|TestLostAndMisplacedSectors|TestPowerLoss|TestPowerLossAtEveryCall|TestWatchResumesAnywhere|TestWatchesGetExactlyTheirEvents)$$
# REPEATED are fuzz targets whose seeds TestSeedsReachEveryRequest sends, too.
REPEATED    := ^(FuzzFramed|FuzzHTTP)$$
# DURATION is how long "make soak" goes on, SEED that of its first episode.
DURATION    ?= 10m
SEED        ?= 1
# NICE lets lint and what runs without the race detector wait for the timed tests: "make test"
# has them fill the time in which those leave the cores idle.
NICE        ?=
# BUG selects seeded bugs by the names of their files in test/mutants/testdata.
BUG         ?=
# RACE runs tests; vet has its own place in "make lint". The state machine and clusters in
# virtual time run without the race detector, where they are cheap. With it, a tenth of the
# clusters runs, and of the machine what SHARED names: the tests that have goroutines. RACE_ONLY
# leaves out the checks of unsafe pointers that come with the detector and take an eighth of the
# time: they concern dependencies, and "make check" has them.
RACE        := $(GO) test -race -vet=off
UNCHECKED   := -gcflags=all=-d=checkptr=0
RACE_ONLY   := $(RACE) $(UNCHECKED)
# ROOMY lets garbage take more memory, which saves a tenth of the time. Nodes in processes of their
# own are tested as they are.
ROOMY       := GOGC=300
# What several targets of "make test" would compile at the same time is compiled before them.
COMPILE     := GOGC=400 $(GO) build
SHARED      := ^(TestModel|TestReadersBesideApply|TestForksAreIndependent)$$
# PKG is the package that "make mutate" changes, SUITES are packages with more of its tests. COUNT
# places are drawn with SEED, from the files named FILE if that is given. ONLY tries some of their
# numbers, and prints what the tests say.
PKG         ?=
SUITES      ?=
COUNT       ?= 200
FILE        ?=
ONLY        ?=
# COMPARE_FLAGS go to the comparison: --smoke tries it, --systems and --workloads choose.
COMPARE_FLAGS ?=
# DEMO_FLAGS go to the demo: --no-fencing lets a stale write in, --keep keeps its files.
DEMO_FLAGS  ?=

.PHONY: build
build: ## build qlockd and qlock into bin/
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: demo
demo: build demo-programs ## refund thousands of orders exactly once while things fail
	@bin/demo/driver run $(DEMO_FLAGS)

.PHONY: demo-up
demo-up: build demo-programs ## leave a three-node cluster up for playing with qlock
	@bin/demo/driver up

.PHONY: demo-down
demo-down: demo-programs ## end that cluster
	@bin/demo/driver down

.PHONY: demo-programs
demo-programs:
	@mkdir -p bin/demo
	$(GO) build -trimpath -o bin/demo/ ./scripts/demo/driver ./scripts/demo/worker ./scripts/demo/ledger

.PHONY: test
test: ## format, vet, staticcheck and all tests, with the race detector where anything is shared
	@$(MAKE) --no-print-directory --jobs=3 NICE='nice -n 19' beside race

# beside is what "make test" runs beside the timed tests.
.PHONY: beside
beside: lint
	@$(MAKE) --no-print-directory norace

.PHONY: lint
lint: packages ## gofmt, go vet and staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(NICE) $(GO) vet ./...
	$(NICE) $(STATICCHECK) ./...

.PHONY: packages
packages:
	@$(COMPILE) ./...

.PHONY: race-packages
race-packages:
	@$(COMPILE) -race $(UNCHECKED) ./...

.PHONY: norace
norace: ## the state machine, two hundred clusters, allocations and whatever has one goroutine
	$(NICE) env $(ROOMY) $(GO) test -vet=off -timeout 10m ./fsm ./test/virtual $(SERIAL)
	$(NICE) $(GO) test -vet=off -timeout 10m -run '$(SERIAL_TESTS)' $(SERIAL_IN)
	$(NICE) $(GO) test -vet=off -timeout 5m -run '^TestAllocations$$' ./client

.PHONY: faults
faults: packages ## tests that hurt processes, and the examples
	$(GO) test -vet=off -timeout 5m -p 2 $(FAULTS)
	$(GO) test -vet=off -timeout 5m -p 1 $(EXAMPLES)

# clocked takes about as long with one package at a time as faults with two.
.PHONY: clocked
clocked: race-packages
	$(RACE_ONLY) -timeout 5m -p 1 $(CLOCKED)

.PHONY: race
race: faults clocked ## all other tests, with the race detector
	$(ROOMY) $(RACE_ONLY) -timeout 5m -run '$(SHARED)' ./fsm
	$(ROOMY) $(RACE_ONLY) -timeout 5m -skip '$(SERIAL_TESTS)|$(REPEATED)' $(call TIMELESS,$(SERIAL))

.PHONY: soak
soak: ## hurt clusters in every way for DURATION, from SEED on
	$(GO) test -timeout 0 -count 1 -v -run '^TestSoak$$' ./test/soak -duration $(DURATION) -seed $(SEED)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## compare benchmarks with the merge base's, in turns: more allocations fail
	GO='$(GO)' BASE='$(BASE)' BENCH='$(BENCH)' ROUNDS='$(ROUNDS)' BENCHTIME='$(BENCHTIME)' scripts/bench.sh

.PHONY: compare
compare: build ## measure beside etcd, ZooKeeper and Redis on this machine, for over an hour
	@scripts/compare/run.sh $(COMPARE_FLAGS)

.PHONY: mutants
mutants: ## seed bugs, each of which some test must catch, and tell which did
	cd test/mutants && $(GO) test -tags mutants -count=1 -timeout 30m -parallel 2 -run '^TestMutants$$/^bugs$$/$(BUG)'

.PHONY: mutate
mutate: ## change PKG in many small ways, one at a time, and list what its tests do not notice
	@[ -n "$(PKG)" ] || { echo "say which package: make mutate PKG=./fsm"; exit 1; }
	$(GO) run ./test/mutation -package $(PKG) -tests '$(SUITES)' -count $(COUNT) -seed $(SEED) -file '$(FILE)' -only '$(ONLY)'

.PHONY: generate
generate: ## regenerate the schema's code and the demo's data
	scripts/generate.sh
	$(GO) generate ./scripts/demo

.PHONY: check
check: lint ## the long versions of everything: about an hour
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off -timeout 30m -v -run '^TestModel$$' ./fsm
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off -timeout 30m -skip '^TestModel$$' ./fsm ./test/virtual
	$(RACE) -timeout 5m ./fsm
	QUORUMLOCK_CHECK=1 $(RACE) -timeout 30m $(call TIMELESS)
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off -timeout 45m -p 1 $(FAULTS)
	$(RACE) -timeout 5m -p 1 $(FAULTS)
	QUORUMLOCK_CHECK=1 $(RACE) -timeout 30m -p 1 $(filter-out $(FAULTS),$(TIMED))
	scripts/fuzz.sh $(FUZZTIME)
	scripts/generate.sh --check
	cd scripts/compare && $(GO) vet ./... && $(STATICCHECK) ./... && $(GO) test -vet=off -timeout 5m ./...

.PHONY: clean
clean: ## remove what was built
	rm -rf bin

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
