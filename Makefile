# All targets need Go (with a C compiler for the race detector), git and make. Other tools are pinned here or
# in scripts/, and Go downloads them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# VERSION is the tag of a release; without one, the programs name the release that they will become.
VERSION     ?= $(shell git describe --tags --dirty 2>/dev/null)
LDFLAGS     := -X main.version=$(VERSION)

# PORTABLE packages also compile on SYSTEMS, which only "make check" tries. NESTED directories are modules of
# their own, whose libraries the product does not depend on. Only "make check" tests OPENAPI, which needs Node,
# and PACKAGE: both take minutes to compile. REDIS runs real clusters in real time, so it has the usual
# priority; its clients mostly wait, so many of them run concurrently. Only "make check" runs those in other
# languages than Go. CONSOLE needs Chromium, which "make check" installs; "make test" uses it where it is.
PORTABLE    := ./client/... ./cmd/qlock/...
SYSTEMS     := darwin windows
OPENAPI     := scripts/openapi
PACKAGE     := scripts/package
REDIS       := test/redis
CONSOLE     := test/console
NESTED      := client/otelquorumlock $(OPENAPI) $(PACKAGE) $(REDIS) $(CONSOLE)

# UNOPTIMIZED makes builds that nobody runs cheaper.
UNOPTIMIZED := -gcflags='all=-N -l -dwarf=false'

# FUZZTIME is how long each fuzz target runs in "make fuzz" and "make check".
FUZZTIME    ?= 30s
# BENCH selects benchmarks. ROUNDS and BENCHTIME are how often and how long each of them runs. BASE is the
# commit to compare with; the default is the merge base.
BENCH       ?= .
ROUNDS      ?= 6
BENCHTIME   ?= 0.2s
BASE        ?=
# Tests of TIMED packages run real clusters in real time. At most two of these packages run concurrently;
# they mostly wait, so they disturb each other little. No other test depends on real time; those share the
# cores. TIMELESS excludes fsm, which is tested separately.
CLOCKED     := ./server/httpapi ./server
# PROGRAMS mostly start nodes and commands and wait for what they print. Only "make check" runs them with the race detector.
PROGRAMS    := ./cmd/qlock ./cmd/qlockd
# FAULTS inject faults into processes that are built without the race detector. It would only check the load,
# which test/virtual runs too, so these packages run without it, except for one line of "make check". The same
# holds for EXAMPLES, whose database takes longer to compile than everything else. Most of test/monitoring needs
# Prometheus, which "make check" installs.
FAULTS      := ./test/process ./test/hostile ./test/disk ./test/upgrade ./test/operations ./test/monitoring
# WAITING are those of FAULTS that mostly wait: "make check" runs them beside others.
WAITING     := ./test/process ./test/hostile ./test/disk ./test/upgrade
EXAMPLES    := ./test/migrate ./test/examples/...
# Tests of TIMED packages build and run programs. The test cache does not see changes of those, so it would report passes
# of earlier programs: UNCACHED is part of every run of these packages.
UNCACHED    := -count=1
TIMED       := $(CLOCKED) $(PROGRAMS) $(FAULTS) $(EXAMPLES)
TIMELESS     = $$($(GO) list ./... | grep -vFx "$$($(GO) list $(TIMED) ./fsm $(1))")
# SERIAL packages and the SERIAL_TESTS of SERIAL_IN compute in one goroutine and cannot have races. "make test"
# runs them without the race detector, which would slow them down about tenfold.
SERIAL      := ./cmd/buildinfo ./cmd/manpage ./cmd/qlock/diagnosis ./internal/contexts ./internal/lint ./scripts/bench \
               ./scripts/demo/generate ./server/failover ./server/httpapi/apierror ./server/httpapi/jsoncodec \
               ./server/httpapi/retry ./server/internal/advice ./server/internal/histogram ./server/internal/retired \
               ./server/recovery ./server/redis/argument ./server/redis/keyname ./server/redis/resp ./server/status \
               ./test/model ./test/mutants ./test/mutation ./transport/identity ./transport/wire
# NORACE packages run without the race detector in "make test". Besides SERIAL, that is test/fuzzing: it sends the
# requests of one client at a time, and the ports' own tests have many clients and run with the detector. Nor do
# most tests of server/replica, whose clusters in virtual time take seven times as long with it: RACED ones do.
NORACE      := $(SERIAL) ./test/fuzzing ./server/replica
RACED       := ^(TestClusterActionsAreAudited|TestDrainedNodeDoesNotLead|TestExpiryUnderOverload|TestFollowersCatchUp|TestLeaderLossKeepsSessionsHoldsAndPlaces|TestMembersAreAddedPromotedMovedAndRemoved|TestOneNoticePerRelease|TestRestartOfAllKeepsEverything|TestSamplesOfEachNode|TestSlowWatchFallsOut|TestTransferLeavesNoOutcomeUncertain|TestTwoDeadMembersAreRemoved|TestWatchHasNoGapsAcrossNodesAndLeaders)$$
SERIAL_IN   := ./server/eventlog ./server/redis/script ./server/storage ./server/storage/segment ./server/storage/stable ./transport
SERIAL_TESTS := ^(TestCutFiles|TestFlippedBits|TestFramesArriveHoweverTheStreamIsCut|TestLostAndMisplacedSectors|TestPowerLoss|TestPowerLossAtEveryCall|TestScriptsAsRedis|TestWatchResumesAnywhere|TestWatchesGetExactlyTheirEvents)$$
# REPEATED are fuzz targets whose seeds TestSeedsReachEveryRequest sends as well.
REPEATED    := ^(FuzzRPC|FuzzHTTP)$$
# BOUNDED tests of "make check" bound durations below a second, or shares of the machine: nothing runs beside them.
BOUNDED     := ^(TestFailover|TestApplyBesideASnapshotOfAMillionLocks|TestWithdrawalEndsConnections|TestKeysEndInTime|TestExcess)$$
QUIET       := ^TestQuietLog$$
# DISKS are scenarios of test/virtual about what disks lose and about snapshots. "make test" runs them without the race
# detector: the load and the elections that they share with the other scenarios run with it.
DISKS       := ^(TestKilledDuringSnapshot|TestSnapshotInstalledUnderLoad|TestPowerLossOf.*|TestRolledBackNodeIsStopped|TestRepeatedRestartsWithAnOldDisk|TestForkedLog|TestDisksRolledBackInAnyOrder|TestTwoLeadersOfOneTerm)$$
# DURATION is how long "make soak" runs, SEED the seed of its first episode.
DURATION    ?= 10m
SEED        ?= 1
# NICE gives lint and all tests that are not timed a lower priority than the timed ones: in "make test" they use the
# time in which the timed tests leave the cores idle.
NICE        ?=
# BUG selects seeded bugs by their file names in test/mutants/testdata.
BUG         ?=
# RACE runs tests with the race detector, without vet, which is part of "make lint". The tests of the state
# machine and of clusters in virtual time run without the detector, since they are much cheaper that way; with
# it, only a tenth of the clusters run, and those tests of the state machine whose goroutines share one (SHARED).
# RACE_ONLY omits the checks of unsafe pointers that the detector enables and that take an eighth of the time:
# they concern dependencies, and "make check" includes them. It also omits what only debuggers read, and most of
# the second for which each program waits at its end for the last reports.
RACE        := $(GO) test -race -vet=off
OMITTED     := -gcflags=all=-d=checkptr=0 -dwarf=false
UNCHECKED   := '$(OMITTED)'
RACE_ONLY   := GORACE=atexit_sleep_ms=50 $(RACE) $(UNCHECKED) -ldflags='-s -w'
# AS_RACED lets staticcheck compile all tests as RACE_ONLY does, which the tests then do not have to do again: that
# saves a minute of "make test" on a new machine.
AS_RACED    := -exec "env 'GOFLAGS=-race \"$(OMITTED)\"'"
# ROOMY collects garbage less often, which saves a tenth of the time. Nodes in separate processes are tested
# with the default.
ROOMY       := GOGC=300
# COMPILE builds in advance what several targets of "make test" would otherwise compile concurrently.
COMPILE     := GOGC=400 $(GO) build
SHARED      := ^(TestReadersBesideApply|TestForksAreIndependent)$$
# PKG is the package that "make mutate" changes, SUITES are other packages that test it. COUNT places are drawn
# with SEED, only from the file FILE if that is set. ONLY tries only the places with these numbers, and prints
# the output of the tests.
PKG         ?=
SUITES      ?=
COUNT       ?= 200
FILE        ?=
ONLY        ?=
# COMPARE_FLAGS are flags for the comparison: --smoke makes a short trial, --systems and --workloads select.
COMPARE_FLAGS ?=
# CACHED_FLAGS are flags for the measurement of cached holds: --smoke makes a short trial.
CACHED_FLAGS ?=
# DEMO_FLAGS are flags for the demo: --no-fencing accepts stale writes, --keep keeps its files.
DEMO_FLAGS  ?=

.PHONY: build
build: ## build qlockd and qlock into bin/
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: package
package: ## write archives, .deb, .rpm, image, SBOM and checksums of a release to bin/package
	cd $(PACKAGE) && $(GO) run . -version '$(VERSION)'

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

# The tests' only C code is SQLite, which takes forty seconds to compile with the usual flags.
.PHONY: test
test: export CGO_CFLAGS = -O0 -g0
test: ## format, vet, staticcheck and all tests, most of them with the race detector
	@$(MAKE) --no-print-directory --jobs=3 NICE='nice -n 19' timed beside

# The clocked packages follow the faults: some of their tests are late if both run at once.
.PHONY: timed
timed: race-packages faults
	@$(MAKE) --no-print-directory clocked

# beside is what "make test" runs concurrently with the timed tests.
.PHONY: beside
beside: lint
	@$(MAKE) --no-print-directory norace
	@$(MAKE) --no-print-directory GATE=1 nested
	@$(MAKE) --no-print-directory race

.PHONY: lint
lint: packages race-packages ## gofmt, go vet and staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	GOGC=400 $(NICE) $(GO) vet ./...
	GOGC=400 $(NICE) $(GO) run $(AS_RACED) $(STATICCHECK) ./...

.PHONY: portable
portable: ## build the SDK and qlock for other systems
	@for system in $(SYSTEMS); do \
		echo "go build for $$system"; \
		GOGC=400 GOOS=$$system CGO_ENABLED=0 $(NICE) $(GO) build $(UNOPTIMIZED) -o /dev/null $(PORTABLE) || exit 1; \
	done

# Packages that install what they need from Debian run one after the other: apt-get refuses to run twice.
.PHONY: nested
nested: ## the tests of the nested modules
	@for module in $(filter-out $(REDIS) $(if $(GATE),$(OPENAPI) $(PACKAGE) $(if $(shell command -v chromium),,$(CONSOLE))),$(NESTED)); do \
		(cd $$module && $(if $(GATE),,QUORUMLOCK_CHECK=1) $(NICE) $(GO) test -vet=off $(UNCACHED) -timeout $(if $(GATE),5m,40m) $(if $(GATE),,-p 1) ./...) || exit 1; \
	done
	cd $(REDIS) && $(if $(GATE),,QUORUMLOCK_CHECK=1) $(GO) test -vet=off $(UNCACHED) -timeout 20m -p 1 -parallel 8 ./...

# vet-others takes minutes of compiling, so only "make check" includes it. Some files of tests are compiled only without
# the race detector.
.PHONY: vet-others
vet-others: ## go vet for other systems, staticcheck without the race detector, both for the nested modules
	$(GO) run $(STATICCHECK) ./...
	@for system in $(SYSTEMS); do \
		echo "go vet for $$system"; GOOS=$$system CGO_ENABLED=0 $(GO) vet $(PORTABLE) || exit 1; \
	done
	@for module in $(NESTED); do \
		(cd $$module && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...) || exit 1; \
	done

.PHONY: packages
packages:
	@$(COMPILE) ./...

.PHONY: race-packages
race-packages:
	@$(NICE) env $(COMPILE) -race $(UNCHECKED) $$($(GO) list ./... | grep -vFx "$$($(GO) list $(PROGRAMS) $(EXAMPLES))")

.PHONY: norace
norace: ## the state machine, over a hundred clusters, allocations and whatever has one goroutine
	$(NICE) env $(ROOMY) $(GO) test -vet=off -timeout 10m ./fsm ./test/virtual $(NORACE)
	$(NICE) $(GO) test -vet=off -timeout 10m -run '$(SERIAL_TESTS)' $(SERIAL_IN)
	$(NICE) $(GO) test -vet=off -timeout 5m -run '^TestAllocations$$' ./client

.PHONY: faults
faults: packages ## tests that hurt processes, and those of the programs and the examples
	$(GO) test -vet=off $(UNCACHED) -timeout 10m -p 2 -parallel 4 $(FAULTS)
	$(GO) test -vet=off $(UNCACHED) -timeout 5m -p 1 $(EXAMPLES)
	$(GO) test -vet=off $(UNCACHED) -timeout 10m -p 2 $(PROGRAMS)

.PHONY: clocked
clocked:
	$(RACE_ONLY) $(UNCACHED) -timeout 10m -p 2 $(CLOCKED)

# test/virtual comes first: it takes a minute of one core, in which the others use the other one.
.PHONY: race
race: ## all other tests, with the race detector
	$(NICE) env $(ROOMY) $(RACE_ONLY) -timeout 10m -run '$(SHARED)|$(RACED)' ./fsm ./server/replica
	$(NICE) env $(ROOMY) $(RACE_ONLY) -timeout 10m -skip '$(SERIAL_TESTS)|$(REPEATED)|$(DISKS)' ./test/virtual $(call TIMELESS,$(NORACE))

.PHONY: soak
soak: ## hurt clusters in every way for DURATION, from SEED on
	$(GO) test -timeout 0 -count 1 -v -run '^TestSoak$$' ./test/soak -duration $(DURATION) -seed $(SEED)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## compare benchmarks with the merge base's, in turns: more allocations fail
	GO='$(GO)' BASE='$(BASE)' BENCH='$(BENCH)' ROUNDS='$(ROUNDS)' BENCHTIME='$(BENCHTIME)' scripts/bench.sh

.PHONY: flood
flood: ## measure what one identity at full flood costs the others, for five minutes
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off $(UNCACHED) -timeout 15m -v -run '^TestExcess$$' ./test/hostile

.PHONY: compare
compare: build ## measure beside etcd, ZooKeeper and Redis on this machine, for over an hour
	@scripts/compare/run.sh $(COMPARE_FLAGS)

.PHONY: cached
cached: build ## measure cached holds against their goals, and other locks beside BASE's, for a quarter of an hour
	@GO='$(GO)' BASE='$(BASE)' scripts/compare/cached.sh $(CACHED_FLAGS)

.PHONY: mutants
mutants: ## seed bugs, each of which some test must catch, and tell which did
	cd test/mutants && $(GO) test -tags mutants -count=1 -timeout 60m -parallel 2 -run '^TestMutants$$/^bugs$$/$(BUG)'

.PHONY: mutate
mutate: ## change PKG in many small ways, one at a time, and list what its tests do not notice
	@[ -n "$(PKG)" ] || { echo "say which package: make mutate PKG=./fsm"; exit 1; }
	$(GO) run ./test/mutation -package $(PKG) -tests '$(SUITES)' -count $(COUNT) -seed $(SEED) -file '$(FILE)' -only '$(ONLY)'

.PHONY: generate
generate: ## regenerate the schema's code and the demo's data
	scripts/generate.sh
	$(GO) generate ./scripts/demo

.PHONY: check
check: lint ## the long versions of everything: between two and three hours
	@$(MAKE) --no-print-directory --jobs=3 NICE='nice -n 19' check-processes check-attacks check-computed
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off $(UNCACHED) -timeout 15m -p 1 -run '$(BOUNDED)' ./test/process ./test/hostile ./fsm
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off $(UNCACHED) -timeout 45m -p 1 $(filter-out $(WAITING),$(FAULTS))
	$(RACE) $(UNCACHED) -timeout 5m -p 1 $(FAULTS)
	QUORUMLOCK_CHECK=1 $(RACE) $(UNCACHED) -timeout 30m -p 1 $(filter-out $(FAULTS),$(TIMED))
	$(GO) test -vet=off -timeout 15m -short -run '^$$' -bench . -benchtime 1x ./...
	scripts/fuzz.sh $(FUZZTIME)
	scripts/generate.sh --check
	@$(MAKE) --no-print-directory portable nested vet-others
	cd scripts/compare && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test -vet=off -timeout 5m ./...

# The long tests of processes take three quarters of an hour and a fifth of a core, and so do attacks. An idle cluster
# beside them must log nothing for 20 minutes. What only computes runs beside both, with a lower priority.
.PHONY: check-processes
check-processes: packages
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off $(UNCACHED) -timeout 80m -skip '$(BOUNDED)|$(QUIET)' ./test/process
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off $(UNCACHED) -timeout 45m -p 1 $(filter-out ./test/process ./test/hostile,$(WAITING))

.PHONY: check-attacks
check-attacks: packages
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off $(UNCACHED) -timeout 30m -run '$(QUIET)' ./test/process
	QUORUMLOCK_CHECK=1 $(GO) test -vet=off $(UNCACHED) -timeout 90m -skip '$(BOUNDED)' ./test/hostile

.PHONY: check-computed
check-computed: packages race-packages
	QUORUMLOCK_CHECK=1 $(NICE) $(GO) test -vet=off -timeout 60m -v -run '^TestModel$$' ./fsm
	QUORUMLOCK_CHECK=1 $(NICE) $(GO) test -vet=off -timeout 60m -skip '^TestModel$$|$(BOUNDED)' ./fsm ./test/virtual
	$(NICE) $(RACE) -timeout 5m ./fsm
	QUORUMLOCK_CHECK=1 $(NICE) $(RACE) -timeout 30m $(call TIMELESS)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
