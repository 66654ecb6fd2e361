#!/usr/bin/env bash
# Compares the benchmarks of this tree, including uncommitted changes, with those of its base commit, in
# alternation on this machine: bench.sh
#
#   BASE       the commit to compare with (the merge base with main; on main itself, the
#              commit before the last one)
#   BENCH      selects benchmarks (.)
#   ROUNDS     how often each side runs, at least 4 (6)
#   BENCHTIME  duration of each benchmark in each round (0.2s)
#
# Times are informative. It fails if a benchmark allocates more than before.
set -euo pipefail
cd "$(dirname "$0")/.."

bench=${BENCH:-.} rounds=${ROUNDS:-6} benchtime=${BENCHTIME:-0.2s} go=${GO:-go}
benchstat="$go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"
if [ "$rounds" -lt 4 ]; then
	echo "fewer than four rounds prove nothing: ROUNDS=$rounds" >&2
	exit 2
fi

# build builds a test binary of each package with benchmarks in a tree, and lists the packages.
build() { # TREE OUTPUT
	local tree=$1 out=$2 dir
	mkdir -p "$out"
	for dir in $(cd "$tree" && $go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...); do
		if grep -q '^func Benchmark' "$dir"/*_test.go; then
			dir=${dir#"$tree/"}
			(cd "$tree" && $go test -c -o "$out/${dir//\//+}.test" "./$dir")
			echo "$dir" >>"$out/packages"
		fi
	done
}

# measure runs the benchmarks of one package on one side, if there are any.
measure() { # SIDE TREE PACKAGE
	local binary=$work/$1/${3//\//+}.test
	[ -x "$binary" ] || return 0
	(cd "$2/$3" && "$binary" -test.run '^$' -test.short -test.timeout 20m -test.benchmem \
		-test.bench "$bench" -test.benchtime "$benchtime") >"$work/output" 2>&1 || {
		cat "$work/output" >&2
		echo "$3: the benchmarks of the $1 failed" >&2
		[ "$1" = base ] # a failure that was fixed since only prevents the comparison
		return
	}
	cat "$work/output" >>"$work/$1.txt"
}

against=$(scripts/base.sh)
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/tree" "$against"
echo "base: $(git log -1 --format='%h %s' "$against")" >&2
build "$work/tree" "$work/base"
build "$PWD" "$work/head"
touch "$work/base.txt" "$work/head.txt"
packages=$(sort -u "$work"/*/packages)
for round in $(seq "$rounds"); do
	echo "round $round of $rounds" >&2
	for package in $packages; do
		# The sides alternate, since the second one may run on a warmer machine.
		if [ $((round % 2)) -eq 1 ]; then
			measure base "$work/tree" "$package"
			measure head "$PWD" "$package"
		else
			measure head "$PWD" "$package"
			measure base "$work/tree" "$package"
		fi
	done
done
$benchstat base="$work/base.txt" head="$work/head.txt"
$benchstat -format csv base="$work/base.txt" head="$work/head.txt" 2>/dev/null | $go run ./scripts/bench
