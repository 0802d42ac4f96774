#!/bin/sh
# Builds the image of the Dockerfile around a static binary, and runs it as it is meant to be run:
#   packaging/docker/test.sh STATIC_BINARY
# Needs buildah, crun and root. The stage that compiles is replaced by one that has the binary:
# otherwise the test would download its base image.
set -eu
static=$(realpath "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
container=test-$$
run=
fail() {
    echo "FAILED: $*" >&2
    [ ! -e "$work/log" ] || cat "$work/log" >&2
    exit 1
}
buildah() { command buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"; }
cleanup() {
    [ -z "$run" ] || crun --root "$work/crun" delete --force "$container" 2>/dev/null || true
    [ ! -d "$work/mounted" ] || umount "$work"/mounted/* 2>/dev/null || true
    buildah rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT

echo "== image"
context=$work/context
mkdir -p "$context/out/usr/bin" "$context/out/etc/ssl/certs" "$context/out/etc/cronlatch" \
    "$context/out/tmp" "$context/state"
chmod 700 "$context/state"
cp "$static" "$context/out/usr/bin/cronlatch"
cp /etc/ssl/certs/ca-certificates.crt "$context/out/etc/ssl/certs/" 2>/dev/null || true
cp packaging/docker/passwd packaging/docker/group "$context/out/etc/"
{
    printf 'FROM scratch AS build\nCOPY out /out\nCOPY state /state\n'
    sed -n '/^FROM scratch$/,$p' packaging/docker/Dockerfile
} >"$context/Dockerfile"
buildah bud --quiet --format docker --layers=false -t cronlatch-test "$context" >/dev/null
buildah inspect --type image cronlatch-test >"$work/image.json"
python3 - "$work/image.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))["Docker"]["config"]
assert config["User"] == "65532:65532", config["User"]
assert config["Entrypoint"] == ["/usr/bin/cronlatch"], config["Entrypoint"]
assert config["Cmd"] == ["run"], config["Cmd"]
assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/cronlatch", "health"], config["Healthcheck"]
PYTHON

echo "== container: not root, read-only, process 1"
image=$(buildah from cronlatch-test)
root=$(buildah mount "$image")
mkdir -p "$work/bundle" "$work/list"
chmod 755 "$work" "$work/list"
cat >"$work/list/jobs.yaml" <<'YAML'
jobs:
  - { name: said, every: 1s, command: [/usr/bin/cronlatch, --version] }
  - { name: long, every: 1s, command: [/usr/bin/cronlatch, exec, --lock, l, --, /usr/bin/cronlatch, health] }
YAML
python3 - "$work" "$root" <<'PYTHON'
import json, sys
work, root = sys.argv[1:]
image = json.load(open(work + "/image.json"))["Docker"]["config"]
options = ["rbind", "ro", "nosuid", "nodev"]
spec = {
    "ociVersion": "1.0.2",
    "process": {
        "terminal": False, "user": {"uid": 65532, "gid": 65532},
        "args": image["Entrypoint"] + image["Cmd"],
        "env": image["Env"] + ["CRONLATCH_HOST=container"],
        "cwd": image["WorkingDir"], "noNewPrivileges": True,
        "capabilities": {k: [] for k in ["bounding", "effective", "permitted"]},
    },
    "root": {"path": root, "readonly": True},
    "hostname": "container",
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/etc/cronlatch", "type": "bind", "source": work + "/list", "options": options},
        {"destination": "/var/lib/cronlatch", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "nodev", "mode=700", "uid=65532", "gid=65532"]},
    ],
    "linux": {"namespaces": [{"type": t} for t in ["pid", "mount", "ipc", "uts", "network"]]},
}
json.dump(spec, open(work + "/bundle/config.json", "w"))
PYTHON
crun="crun --root $work/crun --cgroup-manager=disabled"
$crun run --detach --bundle "$work/bundle" "$container" >"$work/log" 2>&1 </dev/null || fail "it does not start"
run=yes
inside() { $crun exec "$container" /usr/bin/cronlatch "$@"; }
waited=0
until inside health --ready >/dev/null 2>&1; do
    [ $((waited += 1)) -lt 300 ] || fail "it does not become ready"
    sleep 0.1
done
until inside history --json --outcome succeeded said 2>/dev/null | grep -q succeeded; do
    [ $((waited += 1)) -lt 600 ] || fail "no job ran"
    sleep 0.1
done
inside health
echo "== SIGTERM ends it in order"
pid=$($crun state "$container" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
$crun kill "$container" TERM
while [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do
    [ $((waited += 1)) -lt 1200 ] || fail "it does not end"
    sleep 0.1
done
grep -q ' INFO stopped' "$work/log" || fail "it did not end in order"
grep -q 'WARN\|ERROR' "$work/log" && grep 'WARN\|ERROR' "$work/log"
echo "the image works"
