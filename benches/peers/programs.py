"""The programs that are measured: how each is installed, given its jobs, and started.

A job list is the same for all: a command, and jobs with a name and a schedule of six fields
(seconds first, UTC). A program that has other words for it translates it.
"""

import json
import os
import re
import shutil
import sys

from machine import HERE, ROOT, TARGET, Failed, fresh, run


def build_rust():
    """Our daemon and the lock of our library, as `make bench` builds them."""
    text = run(["cargo", "bench", "--locked", "--no-run", "--bench", "peers",
                "--message-format", "json-render-diagnostics"], cwd=ROOT, limit=3600)
    found = {}
    for line in text.splitlines():
        if line.startswith("{"):
            message = json.loads(line)
            if message.get("executable"):
                found[message["target"]["name"]] = message["executable"]
    return found["cronlatch"], found["peers"]


class Program:
    """One row. `resolution` is the finest schedule in seconds, `registry` where it comes from."""

    key = title = registry = source = keeps_apart = ""
    resolution = 1
    folder_of = None  # another program's installation

    def __init__(self):
        self.failure = None

    @property
    def home(self):
        return TARGET / (self.folder_of or self.key)

    @property
    def manifest(self):
        return HERE / (self.folder_of or self.key)

    def install(self):
        raise NotImplementedError

    def version(self):
        raise NotImplementedError

    def start(self, running, work, redis, host, env):
        """Starts the program in `running.folder` and returns once it has its jobs."""
        raise NotImplementedError

    def prepare(self, redis):
        """What is done once before the first start on an empty Redis."""

    def clock(self):
        """A command that prints the time as this program's runtime sees it."""
        return [TARGET / "clock"]

    def cycles(self, redis, count):
        """Microseconds of each cycle of locking and unlocking; `None` if there is no such lock."""
        return None

    def write(self, running, work):
        path = running.folder / "list.json"
        path.write_text(json.dumps(work))
        return path


class Cronlatch(Program):
    key, title, registry = "cronlatch", "**cronlatch**", "this repository"
    source = ""
    keeps_apart = "ledger and lease in Redis"

    def install(self):
        self.daemon, self.locks = build_rust()

    def version(self):
        commit = run(["git", "describe", "--always", "--dirty"], cwd=ROOT).strip()
        return f"{run([self.daemon, '--version']).split()[-1]} ({commit})"

    def prepare(self, redis):
        run([self.daemon, "init", "--store", redis.url])

    def start(self, running, work, redis, host, env):
        jobs = [{"name": job["name"], "schedule": job["cron"], "command": work["command"]}
                for job in work["jobs"]]
        path = running.folder / "jobs.yaml"
        path.write_text(json.dumps({"jobs": jobs}, indent=1))
        running.start(
            [self.daemon, "run", "--host", host, "--store", redis.url, path],
            # One line once it is ready, and no lines about runs: the others log none either.
            env={"STATE_DIRECTORY": str(running.folder),
                 "RUST_LOG": "warn,cronlatch::engine::daemon::presence=info", **env},
            say_ready="ready",
        )

    def cycles(self, redis, count):
        found = json.loads(run([self.locks, redis.url, count]).splitlines()[-1])
        self.pings = found["pings"]
        return found["locks"]


class Cron(Program):
    """Debian's cron, from its package, in a mount namespace with an /etc of its own.

    The paths of its tables and of its lock file are compiled in.
    """

    key, title, registry = "cron", "Debian cron", "Debian"
    source = "https://packages.debian.org/cron"
    keeps_apart = "nothing: each host runs each job"
    resolution = 60
    VERSION = "3.0pl1-162"

    def install(self):
        if os.geteuid() != 0:
            raise Failed("needs root, for a mount namespace and for cron itself")
        if not (self.home / "usr/sbin/cron").exists():
            fresh(self.home)
            try:
                run(["apt-get", "download", f"cron={self.VERSION}"], cwd=self.home)
            except Failed:
                run(["apt-get", "update", "-q"])
                run(["apt-get", "download", f"cron={self.VERSION}"], cwd=self.home)
            run(["dpkg", "-x", next(self.home.glob("*.deb")), self.home])

    def version(self):
        return self.VERSION

    def start(self, running, work, redis, host, env):
        command = " ".join(map(str, work["command"]))
        tables = fresh(running.folder / "tables")
        lines = []
        for job in work["jobs"]:
            second, minute, hour, *rest = job["cron"].split()
            lines.append(" ".join([minute, hour, *rest, "root", command]))
        # cron reads a file of at most 10,000 lines.
        for number in range(0, len(lines), 1000):
            (tables / f"jobs{number}").write_text("\n".join(lines[number:number + 1000]) + "\n")
        script = f"""
            set -e
            cd '{running.folder}'
            mkdir scratch && mount -t tmpfs tmpfs scratch
            mkdir -p scratch/etc/cron.d scratch/etc/pam.d scratch/work scratch/spool/crontabs
            cp tables/* scratch/etc/cron.d/
            cp '{self.home}/etc/pam.d/cron' scratch/etc/pam.d/cron
            : > scratch/etc/crontab
            mount -t overlay overlay -o lowerdir=/etc,upperdir=scratch/etc,workdir=scratch/work /etc
            mkdir -p /var/spool/cron
            mount --bind scratch/spool /var/spool/cron
            mount -t tmpfs tmpfs /run
            exec "$@"
        """
        arguments = [f"{name}={value}" for name, value in env.items()]
        running.start(["unshare", "--mount", "sh", "-c", script, "sh", "env", *arguments,
                       self.home / "usr/sbin/cron", "-f", "-L", "0"])


class Node(Program):
    def install(self):
        home = self.home
        fresh(home)
        for name in ("package.json", "package-lock.json", *self.files):
            shutil.copy(self.manifest / name, home)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=home)

    def version(self):
        pins = json.loads((self.manifest / "package.json").read_text())["dependencies"]
        return ", ".join(f"{name} {pins[name]}" for name in self.shown)

    def clock(self):
        return ["node", "-e", "console.log(String(BigInt(Date.now()) * 1000000n))"]

    def start(self, running, work, redis, host, env):
        path = self.write(running, work)
        running.start(["node", self.home / "scheduler.mjs", redis.url, path, *self.way], env=env,
                      say_ready="ready")


class BullMQ(Node):
    key, title, registry = "bullmq", "BullMQ", "npm"
    source = "https://docs.bullmq.io/guide/job-schedulers"
    keeps_apart = "jobs are in Redis; a worker takes each once"
    files, shown, way = ("scheduler.mjs",), ("bullmq",), ()


class NodeCron(Node):
    key, title, registry = "node-cron", "node-cron with redlock", "npm"
    source = "https://www.npmjs.com/package/redlock"
    keeps_apart = "a lock while the job runs"
    files, shown, way = ("scheduler.mjs", "locks.mjs"), ("node-cron", "redlock"), ("job",)

    def cycles(self, redis, count):
        return json.loads(run(["node", self.home / "locks.mjs", redis.url, count]).splitlines()[-1])


class NodeCronCoordinator(NodeCron):
    """The same, and the lock is asked for an occurrence: differs only where hosts disagree."""

    key, title, folder_of = "node-cron-coordinator", "node-cron, redlock as coordinator", "node-cron"
    source = "https://www.nodecron.com/distributed-coordination.html"
    keeps_apart = "a lock for each occurrence, kept for 30 s"
    way = ("coordinator",)

    def install(self):
        if not (self.home / "node_modules").exists():
            super().install()


class Python(Program):
    def install(self):
        home = self.home
        if not (home / "bin/python").exists():
            fresh(home)
            run([sys.executable, "-m", "venv", home])
        run([home / "bin/pip", "install", "--quiet", "--disable-pip-version-check",
             "--require-hashes", "-r", self.manifest / "requirements.txt"])

    def version(self):
        text = (self.manifest / "requirements.in").read_text()
        pins = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\S+)", text, re.MULTILINE))
        return ", ".join(f"{name} {pins[name]}" for name in self.shown)

    def clock(self):
        return [self.home / "bin/python", "-c", "import time; print(time.time_ns())"]


class APScheduler(Python):
    key, title, registry = "apscheduler", "APScheduler with redis-py's Lock", "PyPI"
    source = "https://apscheduler.readthedocs.io/en/3.x/userguide.html"
    keeps_apart = "a lock while the job runs"
    shown = ("apscheduler", "redis")

    def start(self, running, work, redis, host, env):
        path = self.write(running, work)
        running.start([self.home / "bin/python", self.manifest / "scheduler.py", redis.url, path],
                      env=env, say_ready="ready")

    def cycles(self, redis, count):
        program = [self.home / "bin/python", self.manifest / "locks.py", redis.url, count]
        return json.loads(run(program).splitlines()[-1])


class Celery(Python):
    key, title, registry = "celery", "Celery with RedBeat", "PyPI"
    source = "https://redbeat.readthedocs.io/en/latest/intro.html"
    keeps_apart = "one beat at a time, by a lock in Redis"
    shown = ("celery", "celery-redbeat")

    def start(self, running, work, redis, host, env):
        path = self.write(running, work)
        env = {**env, "PEERS_REDIS": redis.url, "PEERS_LIST": str(path),
               "PYTHONPATH": str(self.manifest), "PYTHONDONTWRITEBYTECODE": "1"}
        celery = [self.home / "bin/celery", "-A", "jobs"]
        # Twice as many processes as its default, because each waits for a child.
        running.start([*celery, "worker", "--loglevel", "INFO", "--hostname", f"{host}@%h",
                       "--concurrency", str(2 * (os.cpu_count() or 1))], env=env,
                      say_ready=" ready.")
        running.start([*celery, "beat", "--loglevel", "WARNING", "--scheduler",
                       "redbeat.RedBeatScheduler", "--pidfile", ""], env=env)


class Cronstable(Python):
    key, title, registry = "cronstable", "cronstable", "PyPI"
    source = "https://pypi.org/project/cronstable/"
    keeps_apart = "one leader, by a lease in a shared folder (it has no Redis)"
    shown = ("cronstable",)

    def start(self, running, work, redis, host, env):
        path = running.folder / "cronstable.yaml"
        shared = running.folder.parent / "cronstable-shared"
        shared.mkdir(exist_ok=True)
        lines = ["cluster:", "  backend: filesystem", f"  nodeName: {host}", "  electLeader: true",
                 "  filesystem:", f"    path: {shared}", "jobs:"]
        for job in work["jobs"]:
            # Seven fields, seconds first and years last.
            lines += [f"  - name: {job['name']}", "    command:",
                      *(f"      - \"{word}\"" for word in work["command"]),
                      f"    schedule: \"{job['cron']} *\""]
        path.write_text("\n".join(lines) + "\n")
        running.start([self.home / "bin/cronstable", "-l", "WARNING", "-c", path], env=env)


class TokioCron(Program):
    key, title, registry = "tokio-cron", "tokio-cron-scheduler, bare", "crates.io"
    source = "https://docs.rs/tokio-cron-scheduler"
    keeps_apart = "nothing: each host runs each job"
    folder_of, way = "rust", "bare"
    shown = ("tokio-cron-scheduler",)

    @property
    def binary(self):
        return self.home / "release/peer-rust"

    def install(self):
        run(["cargo", "build", "--locked", "--release", "--manifest-path",
             self.manifest / "Cargo.toml", "--target-dir", self.home], limit=3600)

    def version(self):
        text = (self.manifest / "Cargo.toml").read_text()
        pins = dict(re.findall(r'^([\w-]+) = (?:\{ version = )?"=([\d.]+)"', text, re.MULTILINE))
        return ", ".join(f"{name} {pins[name]}" for name in self.shown)

    def start(self, running, work, redis, host, env):
        path = self.write(running, work)
        running.start([self.binary, self.way, redis.url, path], env=env, say_ready="ready")


class Rslock(TokioCron):
    key, title = "rslock", "tokio-cron-scheduler with rslock"
    source = "https://docs.rs/rslock"
    keeps_apart = "a lock while the job runs"
    way, shown = "rslock", ("tokio-cron-scheduler", "rslock")

    def cycles(self, redis, count):
        return json.loads(run([self.binary, "locks", redis.url, count]).splitlines()[-1])


class Supercronic(Program):
    """A Go program that none of the registries has; the row says so."""

    key, title, registry = "supercronic", "supercronic", "none"
    source = "https://github.com/aptible/supercronic"
    keeps_apart = "nothing: each host runs each job"

    def install(self):
        raise Failed("Debian, crates.io, PyPI and npm do not have it")

    def version(self):
        return "–"


ALL = [Cronlatch, Cron, Supercronic, BullMQ, NodeCron, NodeCronCoordinator, APScheduler, Celery,
       Cronstable, TokioCron, Rslock]
