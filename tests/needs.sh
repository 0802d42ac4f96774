#!/bin/sh
# Installs what the tests need and is not there yet: a Redis server to start, libfaketime to
# shift clocks with, systemd for a user manager, and the programs that are named as arguments.
# Does nothing, and asks nobody, when all is there.
set -eu

faketime_library() {
    for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1 \
        /usr/lib64/faketime/libfaketime.so.1; do
        [ -e "$library" ] && return 0
    done
    return 1
}

missing=
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
faketime_library || missing="$missing libfaketime"
{ [ -x /lib/systemd/systemd ] && command -v systemd-analyze >/dev/null 2>&1; } ||
    missing="$missing systemd"
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
# The Debian package is built and installed in a directory.
command -v dpkg-shlibdeps >/dev/null 2>&1 || missing="$missing dpkg-dev"
for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -n "$missing" ] || exit 0
# A test runs the completions in this shell if it is there; it is not worth an installation of its own.
command -v fish >/dev/null 2>&1 || missing="$missing fish"

if ! command -v apt-get >/dev/null 2>&1; then
    echo "The tests need:$missing" >&2
    echo "There is no apt-get here to install them with; please install them yourself" >&2
    echo "(redis-server 7.0 or later; names are Debian's)." >&2
    exit 1
fi

sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "The tests need:$missing" >&2
        echo "Please run as root, or install sudo: apt-get install$missing" >&2
        exit 1
    fi
    sudo=sudo
fi

echo "Installing what the tests need:$missing"
$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing </dev/null

# The tests start servers of their own; Debian's package starts one more where systemd is the
# machine's first process. It is stopped again, for it came in by us.
case "$missing" in
*redis-server*)
    if [ "$(cat /proc/1/comm 2>/dev/null)" = systemd ]; then
        $sudo systemctl disable --now redis-server.service </dev/null || true
    fi
    ;;
esac
