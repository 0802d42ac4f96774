"""What is measured: each function takes one program and returns the figures of one round."""

import math
import time
from datetime import datetime, timezone

from machine import (TARGET, Failed, Running, count_marks, fresh, load, marks, shift_seen, shifted,
                     sleep_until, wait_for)

MARK = TARGET / "mark"
SECONDS = 20  # of a job that is due every second
MINUTES = 2  # the same for a program whose finest schedule is a minute
AT_ONCE = (200, 1000, 5000)
CYCLES = 3000
IDLE = (1000, 10000)
IDLE_SECONDS = 20
SKEW = -1.5
SKEW_EVERY = 5
SKEW_RUNS = 6
HOLD = 50  # milliseconds that a job of the skewed hosts takes


def place():
    return fresh(TARGET / "work")


def work_of(folder, crons, *more):
    """A list whose jobs all mark into the same file."""
    jobs = [{"name": f"job-{n}", "cron": cron} for n, cron in enumerate(crons)]
    return {"command": [str(MARK), str(folder / "marks"), *map(str, more)], "jobs": jobs}


def empty(program, redis):
    redis.ask("FLUSHALL")
    program.prepare(redis)


def cron_at(instant):
    due = datetime.fromtimestamp(instant, timezone.utc)
    return f"{due.second} {due.minute} {due.hour} * * *"


def next_multiple(seconds, of):
    return math.floor(seconds / of + 1) * of


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


class started:
    """A program with its jobs on one host; gone at the end of the block."""

    def __init__(self, program, redis, folder, work, host="a", env=None):
        self.arguments = (work, redis, host, env or {})
        self.program = program
        home = folder / host
        home.mkdir(parents=True)
        self.running = Running(home)

    def __enter__(self):
        try:
            self.program.start(self.running, *self.arguments)
            self.running.alive()
        except BaseException:
            self.running.stop()
            raise
        return self.running

    def __exit__(self, *_):
        self.running.stop()


def lateness(program, redis):
    """From the instant to the job's first instruction, in milliseconds."""
    folder = place()
    empty(program, redis)
    step = program.resolution
    cron = "* * * * * *" if step == 1 else "0 * * * * *"
    count = SECONDS if step == 1 else MINUTES
    path = folder / "marks"
    with started(program, redis, folder, work_of(folder, [cron])) as running:
        # Warm: it has run the job three times, if that takes seconds and not minutes.
        if step == 1:
            wait_for(lambda: running.alive() and count_marks(path) >= 3, 60, "its job runs")
        first = next_multiple(time.time() + 0.2, step)
        last = first + (count - 1) * step
        sleep_until(last + min(step, 1) * 0.9)
        if step > 1:
            sleep_until(last + 3)
    # A start up to 100 ms early counts as early.
    found = [began for began in marks(path) if first - 0.1 <= began < last + step - 0.1]
    late = [((began - first + 0.1) % step - 0.1) * 1000 for began in found]
    if not late:
        raise Failed("its job did not run")
    return {"late": [round(value, 3) for value in late], "due": count, "load": load()}


# How long a program takes until it has so many jobs: what it took before.
startup = {}


def allowance(program, count):
    known = {n: took for (key, n), took in startup.items() if key == program.key and n <= count}
    if count in known:
        return known[count] * 1.3 + 3
    guess = known[max(known)] * 2 if known else 1
    return guess + 4


def at_once(program, redis, count):
    """So many jobs due at one instant: when the last one began, and how many began."""
    patience = allowance(program, count)
    for _ in range(4):
        folder = place()
        empty(program, redis)
        due = next_multiple(time.time() + patience, program.resolution)
        began = time.time()
        with started(program, redis, folder, work_of(folder, [cron_at(due)] * count)) as running:
            rested = running.rest(limit=max(30, patience))
            startup[program.key, count] = time.time() - began
            if not rested or time.time() > due - 0.5:
                # It was still busy with its list: again, with more time.
                patience = startup[program.key, count] * 1.3 + 3
                continue
            sleep_until(due)
            watch(folder / "marks", count, due)
        late = [(began - due) * 1000 for began in marks(folder / "marks")]
        return {"began": len(late), "due": count, "load": load(),
                "said": "" if len(late) >= count else running.complaint(),
                "last": round(max(late), 1) if late else None,
                "half": round(percentile(late, 50), 1) if late else None}
    raise Failed(f"it did not come to rest within {patience:.0f} s")


def watch(path, count, due):
    """Until all have begun, or none has for ten seconds, or two minutes are over."""
    seen, since = 0, time.time()
    while (now := time.time()) < due + 120:
        found = count_marks(path)
        if found >= count:
            time.sleep(0.3)  # and no further one
            return
        if found > seen:
            seen, since = found, now
        if now - max(since, due) > 10:
            return
        time.sleep(0.02)


def cycles(program, redis):
    """Microseconds of a lock that is taken and released, one after the other."""
    empty(program, redis)
    took = program.cycles(redis, CYCLES)
    if took is None:
        return None
    found = {"half": round(percentile(took, 50), 1), "most": round(percentile(took, 99), 1)}
    pings = getattr(program, "pings", None)
    if pings:
        found["pings"] = round(percentile(pings, 50), 1)
    return found


def idle(program, redis, count):
    """Memory and processor time while no job is due: all schedules differ, twelve hours away."""
    folder = place()
    empty(program, redis)
    hour = (datetime.now(timezone.utc).hour + 12) % 24
    # An hour has 3,600 seconds.
    crons = [f"{n % 60} {n // 60 % 60} {(hour + n // 3600) % 24} * * *" for n in range(count)]
    window = max(IDLE_SECONDS, program.resolution)
    began = time.time()
    with started(program, redis, folder, work_of(folder, crons)) as running:
        rested = running.rest(limit=60)
        took = time.time() - began
        time.sleep(2)
        before, of_redis, since = running.cpu(), redis.cpu(), time.monotonic()
        time.sleep(window)
        running.alive()
        spent = (running.cpu() - before) / 1e9
        redis_spent, elapsed = redis.cpu() - of_redis, time.monotonic() - since
        return {"memory": round(running.memory(), 1), "cpu": round(100 * spent / elapsed, 3),
                "redis": round(100 * redis_spent / elapsed, 3),
                "start": round(took, 1) if rested else None, "load": load()}


def skew(program, redis):
    """Two hosts, one with a clock that is 1.5 s behind: how often each occurrence began."""
    folder = place()
    shift_seen(program.clock(), SKEW)
    empty(program, redis)
    every = max(SKEW_EVERY, program.resolution)
    count = SKEW_RUNS if program.resolution == 1 else MINUTES
    cron = f"*/{every} * * * * *" if program.resolution == 1 else "0 * * * * *"
    work = work_of(folder, [cron], HOLD)
    with started(program, redis, folder, work, "a") as right:
        with started(program, redis, folder, work, "b", shifted(SKEW)) as wrong:
            if not (right.rest() and wrong.rest()):
                raise Failed("it did not come to rest within 30 s")
            if not wrong.maps_faketime():
                raise Failed("libfaketime is not in its processes")
            first = next_multiple(time.time() + every / 2, every)
            last = first + (count - 1) * every
            sleep_until(last + every / 2)
            right.alive()
            wrong.alive()
    starts = {}
    for began in marks(folder / "marks"):
        due = round(began / every) * every
        if first <= due <= last:
            starts.setdefault(due, []).append(began - due)
    late = [value * 1000 for values in starts.values() for value in values]
    return {
        "due": count, "doubled": sum(len(values) > 1 for values in starts.values()),
        "missing": count - len(starts), "load": load(),
        "earliest": round(min(late)) if late else None,
        "latest": round(max(late)) if late else None,
    }
