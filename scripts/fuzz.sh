#!/usr/bin/env bash
# Runs every native fuzz target of the repository for a limited time: fuzz.sh [30s]
set -euo pipefail
cd "$(dirname "$0")/.."
duration=${1:-30s}

mapfile -t packages < <(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u)
# "go test -list" prints the matching names of a package, followed by "ok <package> ...".
targets=$(go test -list '^Fuzz' "${packages[@]}" | awk '/^Fuzz/ { names[++n] = $1 }
	/^(ok|\?)/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }')
if [ -z "$targets" ]; then
	echo "no fuzz targets found" >&2
	exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# ended reports whether a target failed only because its time was over, which happens before Go 1.27
# (go.dev/issue/75804). It then names no input that fails.
ended() { grep -A 1 '^--- FAIL' "$log" | grep -qx '    context deadline exceeded' && ! grep -q 'Failing input written' "$log"; }

while read -r package name; do
	echo "== $name ($package)"
	# Without a bound, minimizing one input may take a minute, during which no new inputs are tried.
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$duration" -fuzzminimizetime 16x "$package" 2>&1 | tee "$log" || ended
	! ended || echo "no input failed: the time of $name was over"
done <<<"$targets"
