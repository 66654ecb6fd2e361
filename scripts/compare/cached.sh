#!/usr/bin/env bash
# Builds the programs of the base commit, and measures cached holds, and everything else beside that commit:
# cached.sh [flags of scripts/compare/cached]
#
#   BASE       the commit to compare with; see scripts/base.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

go=${GO:-go} base=$(scripts/base.sh)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
echo "building the base commit, $(git log -1 --format='%h %s' "$base")" >&2
git archive "$base" | tar -x -C "$tree"
mkdir -p bin/compare/base
(cd "$tree" && $go build -trimpath -o "$OLDPWD/bin/compare/base/" ./cmd/qlock ./cmd/qlockd)
(cd scripts/compare && $go build -o ../../bin/compare/cached ./cached)
bin/compare/cached --against "$(git log -1 --format='%h' "$base")" "$@"
