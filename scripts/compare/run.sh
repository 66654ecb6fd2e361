#!/usr/bin/env bash
# Builds the systems under comparison, installs missing packages, and runs the comparison:
# run.sh [flags of compare]
set -euo pipefail
cd "$(dirname "$0")/../.."

echo "building etcd and the comparison (the first time takes minutes)" >&2
mkdir -p bin/compare
(cd scripts/compare && go build -o ../../bin/compare/etcd go.etcd.io/etcd/server/v3 && go build -o ../../bin/compare/compare .)

read -r -a missing <<<"$(bin/compare/compare --packages "$@")"
if [ "${#missing[@]}" -gt 0 ]; then
	install=(apt-get install -y --no-install-recommends "${missing[@]}")
	by_hand="install ${missing[*]} yourself, or leave out with --systems what needs them"
	if ! command -v apt-get >/dev/null; then
		echo "there is no apt-get here: $by_hand" >&2
		exit 1
	fi
	sudo=()
	if [ "$(id -u)" -ne 0 ]; then
		if ! sudo -n true 2>/dev/null; then
			echo "this needs root: sudo ${install[*]}" >&2
			echo "or $by_hand" >&2
			exit 1
		fi
		sudo=(sudo)
	fi
	echo "installing ${missing[*]}" >&2
	# Keep the packages from starting services: the comparison starts its own servers.
	policy=/usr/sbin/policy-rc.d
	forget() { :; }
	if [ ! -e "$policy" ]; then
		forget() { "${sudo[@]}" rm -f "$policy"; }
		trap forget EXIT
		printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
		"${sudo[@]}" chmod 755 "$policy"
	fi
	"${sudo[@]}" apt-get update
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"
	forget # exec skips the trap
	trap - EXIT
fi

exec bin/compare/compare "$@"
