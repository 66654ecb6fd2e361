#!/bin/sh
# dpkg calls this with "remove" or "purge" after a removal, rpm with 0.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
	;;
purge)
	# The data are worth more than the space: without them, a cluster may lose its fencing tokens.
	if [ -d /var/lib/quorumlock ]; then
		echo "/var/lib/quorumlock and the user quorumlock were kept"
	fi
	;;
esac
