"""This program beside what people use today: `make bench-peers`.

Installs each program at its pinned version below target/peers, measures all of them one after the
other in each round, and writes docs/benchmarks.md with its plots. The results are kept after every
step (target/peers/results.json), so a run that is cut off has a page too.

    ROUNDS=3                how many rounds (1 for a trial)
    PEERS=cronlatch,bullmq  some programs
    ONLY=lateness,skew      some figures: lateness at_once cycles idle skew
    FULL=1                  everything in each round (otherwise memory at rest and 5,000 at once in the first one only)
    QUICK=1                 fewer samples, jobs and seconds, to try the bench itself
    PAGE=docs/x.md          where the page goes
    REPORT=1                only writes the page again, from the results of the last run
"""

import json
import os
import sys
import time
from datetime import datetime, timezone

import machine
import measure
import page
import programs
from machine import ROOT, TARGET, Failed, Redis, say

RESULTS = TARGET / "results.json"
# They take more than half of a round, and differ the least from round to round.
ONCE = ("idle 1000", "idle 10000", "at_once 5000")


def setting(name):
    return [word for word in os.environ.get(name, "").replace(" ", ",").split(",") if word]


def steps(only):
    """The figures of a round: a name, and what measures it for one program."""
    found = [("lateness", measure.lateness)]
    for count in measure.AT_ONCE:
        found.append((f"at_once {count}", lambda p, r, n=count: measure.at_once(p, r, n)))
    found.append(("cycles", measure.cycles))
    for count in measure.IDLE:
        found.append((f"idle {count}", lambda p, r, n=count: measure.idle(p, r, n)))
    found.append(("skew", measure.skew))
    return [(name, act) for name, act in found if not only or name.split()[0] in only]


def quick():
    measure.SECONDS, measure.MINUTES, measure.CYCLES = 5, 1, 300
    measure.AT_ONCE, measure.IDLE, measure.IDLE_SECONDS = (20, 200), (100, 1000), 5
    measure.SKEW_RUNS = 2


def install(chosen, results):
    ready = []
    for program in chosen:
        about = {"title": program.title, "registry": program.registry, "source": program.source,
                 "apart": program.keeps_apart, "version": "–", "failure": None}
        results["programs"][program.key] = about
        say(f"installing {program.key}")
        try:
            program.install()
            about["version"] = program.version()
            ready.append(program)
        except (Failed, OSError, KeyError) as error:
            about["failure"] = str(error)
            say(f"  {program.key} is left out: {error}")
    return ready


def wanted(program, name):
    # The second way of node-cron differs from the first one only where hosts disagree.
    return name == "skew" or program.key != "node-cron-coordinator"


def measure_round(number, chosen, redis, only, results):
    # Another one is first in each round.
    turn = number % len(chosen)
    for name, act in steps(only):
        if number and name in ONCE and not os.environ.get("FULL"):
            continue
        for program in chosen[turn:] + chosen[:turn]:
            if not wanted(program, name):
                continue
            row = results["figures"].setdefault(name, {}).setdefault(program.key, [])
            if any("failure" in figures for figures in row):
                continue  # once is enough: it would fail for as long again
            began = time.time()
            try:
                figures = act(program, redis)
            except (Failed, OSError, ValueError) as error:
                figures = {"failure": str(error)}
            if figures is not None:
                row.append(figures)
                shown = {key: value for key, value in figures.items() if key != "late"}
                if "late" in figures:
                    shown["half"] = measure.percentile(figures["late"], 50)
                say(f"  {name}: {program.key} {shown} ({time.time() - began:.0f} s)")
            keep(results)


def keep(results):
    results["ended"] = now()
    RESULTS.write_text(json.dumps(results))


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")


def main():
    target = ROOT / (os.environ.get("PAGE") or "docs/benchmarks.md")
    TARGET.mkdir(parents=True, exist_ok=True)
    if os.environ.get("REPORT"):
        page.write(json.loads(RESULTS.read_text()) if RESULTS.exists() else None, target)
        return
    if os.environ.get("QUICK"):
        quick()
    rounds = int(os.environ.get("ROUNDS") or 3)
    keys = setting("PEERS")
    chosen = [make() for make in programs.ALL if not keys or make.key in keys]
    only = setting("ONLY")
    results = {"programs": {}, "figures": {}, "machine": machine.describe(), "began": now(),
               "rounds": 0, "settings": {
                   "seconds": measure.SECONDS, "minutes": measure.MINUTES,
                   "cycles": measure.CYCLES, "idle_seconds": measure.IDLE_SECONDS,
                   "skew_every": measure.SKEW_EVERY, "quick": bool(os.environ.get("QUICK"))}}
    for name, *flags in (("mark", "-static"), ("clock",), ("steady", "-shared", "-fPIC")):
        machine.compile_c(name, *flags)
    ready = install(chosen, results)
    if not ready:
        sys.exit("nothing to measure")
    keep(results)
    redis = Redis()
    began = time.time()
    try:
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}, load {machine.load():.1f}")
            measure_round(number, ready, redis, only, results)
            results["rounds"] = number + 1
            results["minutes"] = round((time.time() - began) / 60)
            keep(results)
            page.write(results, target)
    finally:
        redis.stop()
    say(f"wrote {target} after {results['minutes']} minutes of measuring")


if __name__ == "__main__":
    main()
