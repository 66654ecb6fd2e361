#!/usr/bin/env bash
# Prints the commit with which this tree, including uncommitted changes, is compared: base.sh
#
#   BASE       names it (the merge base with main; on main itself, the commit before the last one)
set -euo pipefail

# commit prints the full hash of a commit, or fails silently.
commit() { git rev-parse --quiet --verify "$1^{commit}"; }

if [ -n "${BASE:-}" ]; then
	commit "$BASE" && exit
	echo "BASE=$BASE is no commit" >&2
	exit 1
fi
main=$(commit origin/main || commit main || true)
grown=$(git merge-base HEAD "${main:-HEAD}" || true)
# Uncommitted changes are compared with the last commit, also on main.
if [ -n "$grown" ] && { [ "$grown" != "$(commit HEAD)" ] || ! git diff --quiet HEAD; }; then
	echo "$grown"
	exit
fi
commit HEAD~1 && exit
echo "there is nothing to compare with: give BASE=" >&2
exit 1
