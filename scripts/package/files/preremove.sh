#!/bin/sh
# dpkg calls this with "remove" before a removal, rpm with 0.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now qlockd.service
	fi
	;;
esac
