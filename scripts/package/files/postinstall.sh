#!/bin/sh
# dpkg calls this with "configure" and the version that was configured before; rpm with the number of installed versions.
set -e

first=no
case "$1" in
configure) [ -n "$2" ] || first=yes ;;
1) first=yes ;;
2) ;;
*) exit 0 ;;
esac

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers quorumlock.conf
elif ! getent passwd quorumlock >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/quorumlock --no-create-home --shell /usr/sbin/nologin quorumlock
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi

if [ $first = yes ]; then
	echo "qlockd was not started: edit /etc/quorumlock/qlockd.yaml, then run systemctl enable --now qlockd"
else
	# Nodes that all restart at once would interrupt the cluster, so the operator restarts one after the other.
	echo "qlockd was not restarted: run qlock cluster drain, systemctl restart qlockd, qlock cluster undrain; one node at a time"
fi
