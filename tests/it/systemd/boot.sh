#!/bin/sh
# Builds a sandbox around this process, checks it, and becomes systemd as process 1 in it.
#   boot.sh DIR PROGRAM [check]
# DIR holds `units`, `lib` (the sandbox's /var/lib), `passwd` and `group`. It appears as /run/t and
# is the only writable part of the real file system. PROGRAM appears as /run/cronlatch. With
# `check` the script ends after its check.
#
# Runs in new mount, process, control group, network, host name and IPC namespaces. A system
# manager cleans /tmp, sets kernel parameters and creates devices as it boots. Therefore the root
# is read-only, the manager finds no units but those in DIR, and nothing is started unless the
# check at the end holds.
set -eu
dir=$1 program=$2

# Before the first mount: on a shared mount it would reach the machine itself.
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/t /run/dev /run/systemd /run/lock
mount --bind "$dir" /run/t
touch /run/cronlatch
mount --bind "$program" /run/cronlatch
mount -o remount,bind,ro /run/cronlatch

mount -t tmpfs -o mode=755 tmpfs /run/dev
mkdir /run/dev/shm /run/dev/pts
for node in null zero full random urandom tty; do
    touch "/run/dev/$node"
    mount --bind "/dev/$node" "/run/dev/$node"
done
ln -s /proc/self/fd /run/dev/fd
ln -s pts/ptmx /run/dev/ptmx
# What lies under a new mount can still be written through other paths.
umount -R -l /dev || true
mount --rbind /run/dev /dev

umount -R -l /sys || true
mount -t sysfs -o ro sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys

mount --bind /run/t/passwd /etc/passwd
mount --bind /run/t/group /etc/group
mount --bind /run/t/lib /var/lib
for place in /tmp /var/tmp /var/log /root /home; do
    # Such as the small disk of another test that runs now. Below the new mount it would have no path.
    awk -v below="$place/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | sort -r |
        while read -r mounted; do umount -l "$mounted"; done
    mount -t tmpfs tmpfs "$place"
done
# Whatever else is mounted, and at last the root.
awk '{ print $2 }' /proc/self/mounts | sort -u | while read -r place; do
    case $place in
    /run | /run/* | /dev | /dev/* | /proc | /proc/* | /sys | /sys/*) ;;
    /etc/passwd | /etc/group | /var/lib | /tmp | /var/tmp | /var/log | /root | /home) ;;
    *) mount -o remount,bind,ro "$place" ;;
    esac
done

# The check. A file system of a real device may be written below DIR alone.
awk -v ok='^(/run/t|/etc/passwd|/etc/group|/var/lib)$' '
    $3 ~ /^(proc|sysfs|cgroup2|devpts|mqueue)$/ { next }
    $3 == "tmpfs" && $2 ~ /^(\/run|\/run\/dev|\/dev|\/tmp|\/var\/tmp|\/var\/log|\/root|\/home)$/ { next }
    $2 ~ /^(\/run)?\/dev\/[a-z]+$/ || $2 ~ ok { next }
    $4 !~ /^ro(,|$)/ { print "writable in the sandbox: " $0 > "/dev/stderr"; bad = 1 }
    END { exit bad }' /proc/self/mounts
for place in / /usr /etc /var /opt /proc/sys/kernel/panic; do
    if [ -w "$place" ]; then
        echo "writable in the sandbox: $place" >&2
        exit 1
    fi
done
for place in /tmp /var/tmp /root /home; do
    if [ -n "$(ls -A "$place")" ]; then
        echo "not empty in the sandbox: $place" >&2
        exit 1
    fi
done
[ "$$" = 1 ] || { echo "not process 1" >&2; exit 1; }
[ "${3-}" != check ] || { cat /proc/self/mounts; exit 0; }

exec env -i container=cronlatch-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    SYSTEMD_UNIT_PATH=/run/t/units \
    SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none \
    /lib/systemd/systemd --system --unit=basic.target --log-target=console
