"""Processes, the Redis server, shifted clocks and the marks of jobs."""

import glob
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "target" / "peers"

# Every process that the bench starts carries it, and so does what that process starts: how the
# bench finds them again.
MARKER = "PEERS_RUN"

LINE = 20  # bytes of a mark: 19 digits and a line feed


class Failed(Exception):
    """What went wrong, in words for the table."""


def say(text):
    print(time.strftime("%H:%M:%S ") + text, flush=True)


def run(argv, limit=1800, **options):
    """Runs a command to its end and returns its output; `Failed` shows the last lines of it."""
    options.setdefault("env", dict(os.environ))
    try:
        done = subprocess.run(
            [str(arg) for arg in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=limit, stdin=subprocess.DEVNULL, **options,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{Path(str(argv[0])).name}: {error}") from error
    if done.returncode:
        tail = " / ".join(done.stdout.strip().splitlines()[-3:])
        raise Failed(f"{Path(str(argv[0])).name} returned {done.returncode}: {tail[:300]}")
    return done.stdout


def sleep_until(instant):
    """`instant` in seconds since the epoch."""
    while (left := instant - time.time()) > 0:
        time.sleep(min(left, 1))


class Redis:
    """The server that all programs use, one after the other."""

    def __init__(self):
        self.dir = fresh(TARGET / "redis")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.child = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""],
            cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )
        wait_for(lambda: self.ask("PING") == "PONG", 30, "redis-server answers")

    def ask(self, *words):
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    def cpu(self):
        """Seconds of processor time that the server has used."""
        found = re.findall(r"used_cpu_(?:sys|user):([\d.]+)", self.ask("INFO", "cpu"))
        return sum(map(float, found))

    def stop(self):
        self.child.terminate()
        self.child.wait()


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def wait_for(holds, limit, what, pause=0.02):
    until = time.monotonic() + limit
    while not holds():
        if time.monotonic() > until:
            raise Failed(f"waited {limit} s in vain: {what}")
        time.sleep(pause)


class Running:
    """A program under measurement: its processes, found by a word in their environment."""

    count = 0

    def __init__(self, folder):
        Running.count += 1
        self.word = f"{os.getpid()}-{Running.count}"
        self.folder = folder
        self.children = []

    def start(self, argv, env=None, say_ready=None):
        """Starts one process; `say_ready` is the line that it prints once it has its jobs."""
        log = self.folder / f"log-{len(self.children)}"
        # Debian's cron and Python programs read the zone from here; everything is in UTC.
        full = {**os.environ, "TZ": "UTC", **(env or {}), MARKER: self.word}
        with open(log, "wb") as file:
            child = subprocess.Popen(
                [str(arg) for arg in argv], stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, env=full, cwd=self.folder, start_new_session=True,
            )
        self.children.append(child)
        if say_ready:
            wait_for(lambda: self.alive() and say_ready in log.read_text(errors="replace"), 240,
                     f"the line {say_ready!r}")
        return child

    def alive(self):
        for number, child in enumerate(self.children):
            if child.poll() is not None:
                raise Failed(f"it ended with {child.returncode}: {self.tail(number)}")
        return True

    def tail(self, number=0):
        text = (self.folder / f"log-{number}").read_text(errors="replace").strip()
        return " / ".join(text.splitlines()[-3:])[-300:]

    def complaint(self):
        """An error that it has logged, in its own words."""
        for number in range(len(self.children)):
            text = (self.folder / f"log-{number}").read_text(errors="replace")
            found = re.search(r"^.*(?:error|failed|EAGAIN).*$", text, re.MULTILINE | re.IGNORECASE)
            if found:
                # Without colours, and without the brackets of time and process before the words.
                words = re.sub(r"\x1b\[\d*m|\[[^\]]*\] ?", "", found.group())
                return words.replace(f"{TARGET}/", "").strip()[:80]
        return ""

    def pids(self):
        """Its processes and all that these have started."""
        word = f"{MARKER}={self.word}".encode()
        parents, found = {}, {child.pid for child in self.children if child.poll() is None}
        for entry in glob.glob("/proc/[0-9]*"):
            pid = int(entry[6:])
            try:
                parents[pid] = int(Path(entry, "stat").read_text().rpartition(")")[2].split()[1])
                if word in Path(entry, "environ").read_bytes():
                    found.add(pid)
            except (OSError, IndexError, ValueError):
                continue
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in found} - found
            found |= more
            grown = bool(more)
        return found

    def cpu(self):
        """Nanoseconds of processor time of the processes that are there now, ended threads included."""
        total = 0
        for pid in self.pids():
            try:
                # The clock of a process's processor time: clock_getcpuclockid(3) makes the number so.
                total += time.clock_gettime_ns((~pid << 3) | 2)
            except OSError:
                continue
        return total

    def memory(self):
        """Megabytes: each process's own pages, and its part of those that it shares (PSS)."""
        total = 0
        for pid in self.pids():
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
            total += int(found.group(1)) if found else 0
        return total / 1024

    def rest(self, limit=30):
        """Whether the program came to rest in time: less than a tenth of a core for half a second."""
        until = time.monotonic() + limit
        before = self.cpu()
        while time.monotonic() < until:
            time.sleep(0.5)
            after = self.cpu()
            if after - before < 50_000_000:
                return True
            before = after
        return False

    def maps_faketime(self):
        for pid in self.pids():
            try:
                if "libfaketime" in Path(f"/proc/{pid}/maps").read_text():
                    return True
            except OSError:
                continue
        return False

    def stop(self):
        for child in self.children:
            if child.poll() is None:
                child.terminate()
        until = time.monotonic() + 3
        while time.monotonic() < until and any(c.poll() is None for c in self.children):
            time.sleep(0.05)
        for _ in range(10):
            left = self.pids()
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.1)
        for child in self.children:
            child.wait()


def marks(path):
    """Seconds since the epoch at which jobs have begun, in their order."""
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return []
    return sorted(int(line) / 1e9 for line in text.splitlines() if len(line) == LINE - 1)


def count_marks(path):
    try:
        return os.path.getsize(path) // LINE
    except FileNotFoundError:
        return 0


def shifted(seconds):
    """The environment in which the wall clock is off by so much, and no other clock is."""
    found = [*glob.glob("/usr/lib/*/faketime/libfaketime.so.1"),
             *glob.glob("/usr/lib*/faketime/libfaketime.so.1")]
    if not found:
        raise Failed("libfaketime is not installed")
    return {
        "LD_PRELOAD": f"{TARGET / 'steady'} {found[0]}", "FAKETIME": f"{seconds:+.3f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
    }


def shift_seen(argv, seconds):
    """Fails unless a program that prints nanoseconds since the epoch sees the shift."""
    text = run(argv, limit=60, env={**os.environ, **shifted(seconds)})
    seen = int(text.split()[-1]) / 1e9 - time.time()
    if not seconds - 0.9 < seen < seconds + 0.4:
        raise Failed(f"libfaketime shifts this runtime by {seen:.2f} s, not {seconds} s")


def compile_c(name, *flags):
    TARGET.mkdir(parents=True, exist_ok=True)
    program = TARGET / name
    run(["cc", "-O2", *flags, "-o", program, HERE / f"{name}.c"])
    return program


def first_line(argv):
    try:
        return run(argv, limit=30).strip().splitlines()[0]
    except (Failed, IndexError):
        return "not there"


def most_processes():
    """How many processes the control group allows: a program that starts all at once can meet it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        if kind in ("", "pids"):
            limit = Path("/sys/fs/cgroup" + (f"/{kind}" if kind else "") + path, "pids.max")
            if limit.exists():
                return limit.read_text().strip()
    return "no limit"


def describe():
    """What the figures were measured on."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text()).group(1))
    system = re.search(r'PRETTY_NAME="(.*)"', Path("/etc/os-release").read_text())
    redis = re.search(r"v=([\d.]+)", first_line(["redis-server", "--version"]))
    return {
        "Processor": f"{os.cpu_count()} × {cpu.group(1) if cpu else platform.machine()}",
        "Processes at most": most_processes(),
        "Memory": f"{memory / 1024**2:.0f} GiB",
        "System": f"{system.group(1) if system else '?'}, Linux {platform.release()}",
        "Redis": redis.group(1) if redis else "?",
        "Rust": first_line(["rustc", "--version"]).removeprefix("rustc "),
        "Node.js": first_line(["node", "--version"]).removeprefix("v"),
        "Python": platform.python_version(),
    }


def load():
    return os.getloadavg()[0]
