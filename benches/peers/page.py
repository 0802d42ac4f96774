"""The page and its plots, from the results alone."""

from statistics import median

from plots import number, plot

OURS = "cronlatch"

INTRO = """# Benchmarks: cronlatch beside other schedulers

`make bench-peers` writes this page. It installs each program from its registry at a pinned version, and gives each the
same jobs, the same Redis server, and the same job: a static C program whose first act is to write down the time. The
programs run one after the other within each round, and each round begins with another one. A figure is the median of
{rounds}, followed by the least and the most of them in parentheses. Where a program failed, its cell says how.

The programs and their settings are in `benches/peers/`: the shortest scheduler that the documentation of each recommends,
with the settings that it recommends for many jobs.
"""


def write(results, path):
    folder = path.parent / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {}

    def picture(name, alt, *arguments, **options):
        pictures[name] = plot(*arguments, **options)
        return f"![{alt}]({path.stem}/{name}.svg)\n"

    sections = [about(results), late(results, picture), burst(results, picture),
                locks(results, picture), rest(results, picture), skewed(results, picture),
                again(results)]
    count = results["rounds"]
    rounds = "one round" if count == 1 else f"{count} rounds"
    text = INTRO.format(rounds=rounds) + "\n" + "\n".join(filter(None, sections))
    path.write_text(text)
    for name, svg in pictures.items():
        (folder / f"{name}.svg").write_text(svg)


def rows_of(results, name):
    """(key, title, rounds, failure) of each program that has figures of this name."""
    figures = results["figures"].get(name, {})
    for key, program in results["programs"].items():
        if program["failure"]:
            if key != "node-cron-coordinator":
                yield key, program["title"], [], f"not installed: {program['failure']}"
            continue
        if key not in figures:
            continue
        rounds = [entry for entry in figures[key] if "failure" not in entry]
        failures = [entry["failure"] for entry in figures[key] if "failure" in entry]
        yield key, program["title"], rounds, failures[0] if failures else None


def spread(values):
    """(least, median, most)"""
    values = [value for value in values if value is not None]
    return (min(values), median(values), max(values)) if values else None


def cell(entry, unit):
    if not entry:
        return "–"
    least, half, most = (number(value) for value in entry)
    return f"{half} {unit} ({least} to {most})" if least != most else f"{half} {unit}"


def plain(title):
    return title.replace("*", "")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def reason(text):
    return "**failed:** " + " ".join(text.split())


def about(results):
    lines = ["## Machine and versions\n"]
    loads = [entry["load"] for rows in results["figures"].values() for row in rows.values()
             for entry in row if "load" in entry]
    facts = dict(results["machine"])
    facts["Date"] = f"{results['began']} to {results['ended']} UTC, {results['minutes']} minutes"
    if loads:
        facts["Load"] = (f"{median(loads):.1f} (at most {max(loads):.1f}): "
                         "the average of the last minute, the measured programs included")
    lines.append(table(["", ""], facts.items()))
    head = ["program", "version", "from", "what keeps two hosts from running an occurrence twice"]
    rows = []
    for program in results["programs"].values():
        title = program["title"]
        if program["source"]:
            title = f"[{title}]({program['source']})"
        rows.append([title, program["version"], program["registry"], program["apart"]])
    lines.append(table(head, rows))
    missing = [f"{plain(p['title'])}: {p['failure']}." for p in results["programs"].values()
               if p["failure"]]
    if missing:
        lines.append("Not installed. " + " ".join(missing) + "\n")
    return "\n".join(lines)


def late(results, picture):
    if "lateness" not in results["figures"]:
        return None
    settings = results["settings"]
    rows, plotted = [], []
    for key, title, rounds, failure in rows_of(results, "lateness"):
        if not rounds:
            rows.append([title, reason(failure), "", "", ""])
            plotted.append((plain(title), key == OURS, [failure]))
            continue
        half = spread(median(entry["late"]) for entry in rounds)
        every = [value for entry in rounds for value in entry["late"]]
        due = sum(entry["due"] for entry in rounds)
        rows.append([title, cell(half, "ms"), f"{number(max(every))} ms", f"{number(min(every))} ms",
                     f"{len(every)} of {due}"])
        plotted.append((plain(title), key == OURS, [half]))
    text = f"""## Lateness

From the instant at which a job is due to its first instruction. One job is due every second, for {settings['seconds']} s
in each round. Debian's cron has no seconds: its job is due every minute, {settings['minutes']} times in each round.
All but cron and the bare scheduler take a lock before the job starts. cronlatch takes it ahead of the instant, which is
why it can be earlier than a bare scheduler.

"""
    text += picture("lateness", "Lateness of one job by program", "Lateness of one job",
                    "from the due instant to the first instruction of the job; logarithmic", "ms",
                    ["median"], plotted)
    return text + "\n" + table(
        ["program", "median", "most", "least", "runs"], rows)


def burst(results, picture):
    names = [name for name in results["figures"] if name.startswith("at_once ")]
    if not names:
        return None
    counts = [int(name.split()[1]) for name in names]
    rows, plotted = {}, {}
    for name, count in zip(names, counts):
        for key, title, rounds, failure in rows_of(results, name):
            row = rows.setdefault(key, [title])
            entries = plotted.setdefault(key, (plain(title), key == OURS, []))[2]
            if not rounds:
                row.append(reason(failure) if len(row) == 1 or "installed" not in failure else "")
                entries.append(failure if not entries or "installed" not in failure else "")
                continue
            seconds = spread(entry["last"] and entry["last"] / 1000 for entry in rounds)
            # The worst round counts.
            fewest = min(entry["began"] for entry in rounds)
            most = max(entry["began"] for entry in rounds)
            wrong = ""
            if fewest < count:
                wrong = f"**{number(count - fewest)} did not start** within the time"
            if most > count:
                wrong = f"**{number(most - count)} started twice**"
            shown = cell(seconds, "s") if seconds else ""
            row.append("; ".join(filter(None, [shown, wrong])))
            entries.append(seconds if seconds and not wrong else f"{plain_text(wrong)}")
    series = [f"{count:,} jobs" for count in counts]
    text = """## Many jobs at one instant

So many jobs are due at the same instant: the time until the last one has begun. The bench waits until none has begun
for ten seconds, for two minutes at most.

"""
    text += picture("at-once", "Time until the last of many jobs has begun",
                    "Many jobs due at one instant", "until the last one has begun; logarithmic",
                    "s", series, list(plotted.values()))
    return text + "\n" + table(["program", *series], rows.values())


def plain_text(text):
    return text.replace("*", "")


def locks(results, picture):
    if "cycles" not in results["figures"]:
        return None
    rows, plotted, pings = [], [], None
    for key, title, rounds, failure in rows_of(results, "cycles"):
        if not rounds and (failure is None or "not installed" in failure):
            continue
        if not rounds:
            rows.append([title, reason(failure), ""])
            plotted.append((plain(title), key == OURS, [failure]))
            continue
        half = spread(entry["half"] for entry in rounds)
        most = spread(entry["most"] for entry in rounds)
        rows.append([title, cell(half, "µs"), cell(most, "µs")])
        plotted.append((plain(title), key == OURS, [half]))
        if rounds[0].get("pings"):
            pings = spread(entry["pings"] for entry in rounds)
    if pings:
        rows.append(["two PINGs, as a floor", cell(pings, "µs"), "–"])
        plotted.append(("two PINGs, as a floor", False, [pings]))
    text = f"""## Cycles of a lock

One lock taken and released by one client, {results['settings']['cycles']:,} times in each round. cronlatch is its library
here. Its cycle does more than the others: a fencing token, a renewal in the background, and a ledger that keeps a lock
from being granted again too early after a loss of data. BullMQ, Celery, cron, cronstable and the bare scheduler have no
lock to measure.

"""
    text += picture("locks", "Duration of a lock's cycle by program", "A lock taken and released",
                    "one client, one after the other", "µs", ["median"], plotted, linear=True)
    return text + "\n" + table(["program", "median", "99th percentile"], rows)


def rest(results, picture):
    names = [name for name in results["figures"] if name.startswith("idle ")]
    if not names:
        return None
    counts = [int(name.split()[1]) for name in names]
    rows, plotted = {}, {}
    for name in names:
        for key, title, rounds, failure in rows_of(results, name):
            row = rows.setdefault(key, [title])
            entries = plotted.setdefault(key, (plain(title), key == OURS, []))[2]
            if not rounds:
                shown = reason(failure) if len(row) == 1 or "installed" not in failure else ""
                row += [shown, "", "", ""]
                entries.append(failure if not entries or "installed" not in failure else "")
                continue
            memory = spread(entry["memory"] for entry in rounds)
            row += [cell(memory, "MB"), cell(spread(entry["cpu"] for entry in rounds), "%"),
                    cell(spread(entry["redis"] for entry in rounds), "%"),
                    cell(spread(entry["start"] for entry in rounds), "s")]
            entries.append(memory)
    head = ["program"]
    for count in counts:
        head += [f"memory, {count:,} jobs", "CPU", "CPU of Redis", "start"]
    text = f"""## At rest

All jobs are due about twelve hours away, each at its own second. Memory is that of all processes of a program (PSS, so
that shared pages count once), CPU the share of one core over {results['settings']['idle_seconds']} s (cron: a minute,
because it wakes once a minute). The start lasts until the program is at rest.

"""
    text += picture("idle", "Memory at rest by program", "Memory at rest",
                    "all processes of the program; logarithmic", "MB",
                    [f"{count:,} jobs" for count in counts], list(plotted.values()))
    return text + "\n" + table(head, rows.values())


def skewed(results, picture):
    if "skew" not in results["figures"]:
        return None
    rows, plotted = [], []
    for key, title, rounds, failure in rows_of(results, "skew"):
        if not rounds:
            rows.append([title, reason(failure), "", "", ""])
            plotted.append((plain(title), key == OURS, [failure]))
            continue
        due = sum(entry["due"] for entry in rounds)
        doubled = sum(entry["doubled"] for entry in rounds)
        missing = sum(entry["missing"] for entry in rounds)
        early = [entry["earliest"] for entry in rounds if entry["earliest"] is not None]
        latest = [entry["latest"] for entry in rounds if entry["latest"] is not None]
        rows.append([title, f"{doubled} of {due}", missing,
                     f"{number(min(early))} ms" if early else "–",
                     f"{number(max(latest))} ms" if latest else "–"])
        share = spread(100 * entry["doubled"] / entry["due"] for entry in rounds)
        plotted.append((plain(title), key == OURS, [share]))
    text = f"""## Doubled runs when clocks disagree

Two hosts with the same list, one of them with a clock that is 1.5 s behind (libfaketime; the bench checks that the
runtime of each program sees the shift and that the library is in its processes). The job takes 50 ms and is due every
{results['settings']['skew_every']} s (cron: every minute). The last columns show when the job began, by the right clock:
a program that lets one of the hosts decide is 1.5 s late if that host is the one with the wrong clock.

"""
    text += picture("skew", "Share of occurrences that ran twice by program",
                    "Occurrences that ran twice", "two hosts, one clock 1.5 s behind", "%",
                    ["share"], plotted, linear=True)
    return text + "\n" + table(
        ["program", "occurrences that ran twice", "that did not run", "earliest start",
         "latest start"], rows)


def again(results):
    settings = results["settings"]
    warning = "**This page is from a trial with few samples.** " if settings["quick"] else ""
    return f"""## Measure it yourself

```sh
make bench-peers            # three rounds, less than two hours
make bench-peers ROUNDS=1   # a trial
```

{warning}It needs root (for Debian's cron), Node.js with npm, Python 3.10 or later with venv, and access to the registries.
Nothing is installed outside of `target/peers`. Figures of a busy machine say little: the table of the machine has the load.
"""
