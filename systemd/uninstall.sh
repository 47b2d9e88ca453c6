#!/bin/sh
# Removes all that install.sh made. Needs root.
#
#   /opt/compute-agent/uninstall.sh [--keep-state]
#
# --keep-state leaves /var/lib/compute-agent and /etc/compute-agent (and their user) for a later installation.
# No guest and nothing of libvirt is touched.
set -eu

PREFIX=/opt/compute-agent
PATH=$PATH:/usr/sbin:/sbin

die() { echo "uninstall.sh: $*" >&2; exit 1; }

# A function is read to its end before it runs: this file is among what it removes.
remove() {
    if [ -d /run/systemd/system ]; then
        systemctl disable --quiet --now compute-agent.service 2> /dev/null || true
    fi
    rm -f /etc/systemd/system/compute-agent.service
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl reset-failed compute-agent.service 2> /dev/null || true
    fi
    for name in compute-agent agentctl; do
        link=/usr/local/bin/$name
        if [ "$(readlink "$link" || true)" = "$PREFIX/venv/bin/$name" ]; then rm -f "$link"; fi
    done
    rm -rf /run/compute-agent
    if [ -z "$keep_state" ]; then
        rm -rf /var/lib/compute-agent /etc/compute-agent
        if grep -qsx user "$PREFIX/made"; then
            userdel compute-agent
            ! getent group compute-agent > /dev/null || groupdel compute-agent
        fi
        rm -rf "$PREFIX"
        echo "compute-agent and all that it had stored are removed."
    else
        # a second install.sh must still know that the user was made by the first
        find "$PREFIX" -mindepth 1 -maxdepth 1 ! -name made ! -name uninstall.sh -exec rm -rf {} +
        echo "compute-agent is removed. Kept: /var/lib/compute-agent, /etc/compute-agent, user compute-agent."
        echo "To remove these too: $PREFIX/uninstall.sh"
    fi
}

keep_state=
case "${1:-}" in
    '') ;;
    --keep-state) keep_state=1 ;;
    *) sed -n '2,7p' "$0" | cut -c3- >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || die "needs root. Nothing was changed. Use: sudo $0 $*"
[ -e "$PREFIX/made" ] || die "$PREFIX was not made by install.sh (no file 'made' in it). Nothing was changed."
remove
exit 0
