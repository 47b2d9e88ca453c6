#!/bin/sh
# Installs compute-agent from this folder: no internet, no compiler, nothing but python3 and python3-venv (and libvirt's
# client library). Needs root.
#
#   ./install.sh [--python PATH]
#
# Makes /opt/compute-agent, /usr/local/bin/compute-agent and agentctl, /etc/compute-agent/compute-agent.conf (an
# existing one is kept), /etc/systemd/system/compute-agent.service, and the user and group compute-agent.
# /opt/compute-agent/uninstall.sh removes all of it. Starts nothing.
set -eu

PREFIX=/opt/compute-agent
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
python=python3

die() { echo "install.sh: $*" >&2; exit 1; }

check_machine() {
    [ "$(id -u)" = 0 ] || die "needs root. Nothing was changed. Use: sudo $0"
    command -v "$python" > /dev/null || die "$python is not installed. Nothing was changed. Debian: apt-get install python3 python3-venv"
    want=$(cat "$here/python-version")
    have=$("$python" -c 'import platform, sys; print("%d.%d-%s" % (*sys.version_info[:2], platform.machine()))')
    [ "$have" = "$want" ] || die "this bundle was built for Python $want and $python is $have. Nothing was changed. \
Name another one (--python PATH), or build the bundle on a machine like this one: make bundle"
    "$python" -c 'import ensurepip, venv' 2> /dev/null || die "$python cannot make virtual environments. Nothing was changed. \
Debian: apt-get install python3-venv"
    "$python" -c 'import ctypes; ctypes.CDLL("libvirt.so.0")' 2> /dev/null || die "libvirt's client library (libvirt.so.0) \
is not on this machine. Nothing was changed. Debian: apt-get install libvirt0"
    for name in compute-agent agentctl; do
        link=/usr/local/bin/$name
        if [ -e "$link" ] && [ "$(readlink "$link")" != "$PREFIX/venv/bin/$name" ]; then
            die "$link is there already and belongs to something else. Nothing was changed. Move it away first."
        fi
    done
    if [ -d "$PREFIX" ] && [ ! -e "$PREFIX/made" ]; then
        die "$PREFIX is there already and was not made by this script. Nothing was changed. Move it away first."
    fi
}

make_user() {
    if ! getent passwd compute-agent > /dev/null; then
        getent group compute-agent > /dev/null || groupadd --system compute-agent
        useradd --system --gid compute-agent --home-dir /var/lib/compute-agent --no-create-home \
            --shell /usr/sbin/nologin compute-agent
        echo user >> "$PREFIX/made"
    fi
}

install_files() {
    mkdir -p "$PREFIX"
    touch "$PREFIX/made"                                # what only sometimes is made, for uninstall.sh
    cp "$here/uninstall.sh" "$PREFIX/uninstall.sh"
    cp "$here/LICENSE" "$PREFIX/LICENSE"
    rm -rf "$PREFIX/venv"
    "$python" -m venv "$PREFIX/venv"
    "$PREFIX/venv/bin/python" -m pip --isolated install --quiet --no-index --disable-pip-version-check --no-cache-dir \
        --find-links "$here/wheelhouse" compute-agent
    make_user
    mkdir -p /usr/local/bin
    for name in compute-agent agentctl; do ln -sfn "$PREFIX/venv/bin/$name" "/usr/local/bin/$name"; done
    mkdir -p /etc/compute-agent
    cp "$here/compute-agent.conf.sample" /etc/compute-agent/compute-agent.conf.sample
    if [ ! -e /etc/compute-agent/compute-agent.conf ]; then
        # every line of the sample is a comment that shows the default
        cp "$here/compute-agent.conf.sample" /etc/compute-agent/compute-agent.conf
    fi
    mkdir -p /etc/systemd/system
    cp "$here/compute-agent.service" /etc/systemd/system/compute-agent.service
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl try-restart compute-agent.service     # an older version that runs
    fi
}

while [ $# -gt 0 ]; do
    case $1 in
        --python) [ $# -ge 2 ] || die "--python needs a path"; python=$2; shift 2 ;;
        *) sed -n '2,9p' "$0" | cut -c3- >&2; exit 2 ;;
    esac
done
check_machine
install_files
cat <<TEXT
Installed in $PREFIX. Nothing was started. Next:
    agentctl check                          look at this host once, without a daemon
    systemctl enable --now compute-agent    keep looking
    $PREFIX/uninstall.sh        remove all of it
TEXT
