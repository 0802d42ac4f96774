"""The page and its plots, from the results alone."""

from statistics import median

from machine import TARGET
from plots import number, plot

OURS = "cronlatch"

INTRO = """# Benchmarks: cronlatch beside other schedulers

`make bench-peers` writes this page. It installs each program from its registry at a pinned version, and gives all of
them the same job lists, the same Redis server and the same command: a static C program that first writes down the time.
Within a round the programs run one after the other, and each round begins with another one.{spread}
If a program failed, its cell says how.

`benches/peers/` has the programs and their settings: for each the shortest scheduler that its documentation recommends,
with the settings that it recommends for many jobs.
"""

SPREAD = """
A figure is the median of {count} rounds, followed by the lowest and the highest of them in parentheses.
Where there are none, it was measured in the first round only."""

NOTHING = """# Benchmarks: cronlatch beside other schedulers

`make bench-peers` writes this page: cronlatch beside cron, BullMQ, node-cron, APScheduler, Celery, cronstable and
tokio-cron-scheduler. It has not been run on this version yet.
"""


def write(results, path):
    """Writes the page of these results; without any, one that says so."""
    if results is None:
        path.write_text(NOTHING)
        return
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
    of_rounds = SPREAD.format(count=count) if count > 1 else "\nThe figures are those of one round."
    text = INTRO.format(spread=of_rounds) + "\n" + "\n".join(filter(None, sections))
    path.write_text(text)
    for name, svg in pictures.items():
        (folder / f"{name}.svg").write_text(svg)


def rows_of(results, name):
    """(key, title, note, rounds, failure) of each program that has figures of this name."""
    figures = results["figures"].get(name, {})
    for key, program in results["programs"].items():
        if key not in figures:
            continue
        rounds = [entry for entry in figures[key] if "failure" not in entry]
        failures = [entry["failure"] for entry in figures[key] if "failure" in entry]
        note = f" (a later round failed: {failures[0]})" if rounds and failures else ""
        yield key, program["title"], note, rounds, failures[0] if failures else None


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
    return "**failed:** " + " ".join(text.replace(f"{TARGET}/", "").split())


def about(results):
    lines = ["## Machine and versions\n"]
    loads = [entry["load"] for rows in results["figures"].values() for row in rows.values()
             for entry in row if "load" in entry]
    facts = dict(results["machine"])
    facts["Date"] = f"{results['began']} to {results['ended']} UTC"
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
        version = program["version"]
        if program["failure"]:
            version = f"**not installed:** {' '.join(program['failure'].split())}"
        rows.append([title, version, program["registry"], program["apart"]])
    lines.append(table(head, rows))
    return "\n".join(lines)


def late(results, picture):
    if "lateness" not in results["figures"]:
        return None
    settings = results["settings"]
    rows, plotted = [], []
    for key, title, note, rounds, failure in rows_of(results, "lateness"):
        if not rounds:
            rows.append([title, reason(failure), "", "", ""])
            plotted.append((plain(title), key == OURS, [failure]))
            continue
        half = spread(median(entry["late"]) for entry in rounds)
        every = [value for entry in rounds for value in entry["late"]]
        due = sum(entry["due"] for entry in rounds)
        rows.append([title + note, cell(half, "ms"), f"{number(max(every))} ms", f"{number(min(every))} ms",
                     f"{len(every)} of {due}"])
        plotted.append((plain(title), key == OURS, [half]))
    text = f"""## Lateness

The time from the instant at which a job is due to its first instruction. One job is due every second, {settings['seconds']}
times in each round. Debian's cron has no seconds: its job is due every minute, {settings['minutes']} times in each round.
Whatever keeps hosts apart (see the table above) is part of the figure. cronlatch does it ahead of the instant. A job that
starts more than a second late counts for the next second.

"""
    text += picture("lateness", "Lateness of one job by program", "Lateness of one job",
                    "from the due instant to the first instruction of the job; logarithmic", "ms",
                    ["median"], plotted)
    return text + "\n" + table(
        ["program", "median", "latest of all", "earliest of all", "runs"], rows)


def burst(results, picture):
    names = [name for name in results["figures"] if name.startswith("at_once ")]
    if not names:
        return None
    counts = [int(name.split()[1]) for name in names]
    rows, plotted = {}, {}
    for name, count in zip(names, counts):
        for key, title, note, rounds, failure in rows_of(results, name):
            row = rows.setdefault(key, [title + note])
            entries = plotted.setdefault(key, (plain(title), key == OURS, []))[2]
            if not rounds:
                row.append(reason(failure))
                entries.append(failure)
                continue
            seconds = spread(entry["last"] and entry["last"] / 1000 for entry in rounds)
            # The worst round counts.
            fewest = min(entry["began"] for entry in rounds)
            most = max(entry["began"] for entry in rounds)
            wrong = because = ""
            if fewest < count:
                wrong = f"**{number(count - fewest)} did not start**"
                said = next((entry["said"] for entry in rounds if entry.get("said")), "")
                because = f" (`{said.replace('`', '')}`)" if said else ""
            if most > count:
                wrong = f"**{number(most - count)} too many started**"
            shown = cell(seconds, "s") if seconds else ""
            row.append("; ".join(filter(None, [shown, wrong + because])))
            entries.append(seconds if seconds and not wrong else f"{plain_text(wrong)}")
    series = [f"{count:,} jobs" for count in counts]
    text = """## Many jobs at one instant

Many jobs are due at the same instant. The figure is the time until the last one has begun. The bench stops waiting when
no job has begun for ten seconds, or after two minutes.

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
    for key, title, note, rounds, failure in rows_of(results, "cycles"):
        if not rounds and not failure:
            continue  # it has no lock
        if not rounds:
            rows.append([title, reason(failure), ""])
            plotted.append((plain(title), key == OURS, [failure]))
            continue
        half = spread(entry["half"] for entry in rounds)
        most = spread(entry["most"] for entry in rounds)
        rows.append([title + note, cell(half, "µs"), cell(most, "µs")])
        plotted.append((plain(title), key == OURS, [half]))
        if rounds[0].get("pings"):
            pings = spread(entry["pings"] for entry in rounds)
    if pings:
        rows.append(["two PINGs, as a floor", cell(pings, "µs"), "–"])
        plotted.append(("two PINGs, as a floor", False, [pings]))
    text = f"""## Cycles of a lock

One client takes and releases one lock, {results['settings']['cycles']:,} times in each round. For cronlatch this is the
lock of its library. Its cycle does more than the others: it grants a fencing token, registers the lease for renewal,
and keeps a state that outlives the lock. Programs without such a lock are left out.

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
        for key, title, note, rounds, failure in rows_of(results, name):
            row = rows.setdefault(key, [title + note])
            entries = plotted.setdefault(key, (plain(title), key == OURS, []))[2]
            if not rounds:
                row += [reason(failure), "", "", ""]
                entries.append(failure)
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

All jobs are due in about twelve hours, at different seconds. Memory is that of all processes of a program (PSS, which
counts shared pages once). CPU is the share of one core over {results['settings']['idle_seconds']} s; for cron over a
minute, because it wakes once a minute. The start lasts until the program is at rest, with a resolution of half a second.

"""
    text += picture("idle", "Memory at rest by program", "Memory at rest",
                    "all processes of the program; logarithmic", "MB",
                    [f"{count:,} jobs" for count in counts], list(plotted.values()))
    return text + "\n" + table(head, rows.values())


def skewed(results, picture):
    if "skew" not in results["figures"]:
        return None
    rows, plotted = [], []
    for key, title, note, rounds, failure in rows_of(results, "skew"):
        if not rounds:
            rows.append([title, reason(failure), "", "", ""])
            plotted.append((plain(title), key == OURS, [failure]))
            continue
        due = sum(entry["due"] for entry in rounds)
        doubled = sum(entry["doubled"] for entry in rounds)
        missing = sum(entry["missing"] for entry in rounds)
        early = [entry["earliest"] for entry in rounds if entry["earliest"] is not None]
        latest = [entry["latest"] for entry in rounds if entry["latest"] is not None]
        rows.append([title + note, f"{doubled} of {due}", missing,
                     f"{number(min(early))} ms" if early else "–",
                     f"{number(max(latest))} ms" if latest else "–"])
        share = spread(100 * entry["doubled"] / entry["due"] for entry in rounds)
        plotted.append((plain(title), key == OURS, [share]))
    text = f"""## Doubled runs when clocks disagree

Two hosts have the same list, and the clock of the second one is 1.5 s behind (libfaketime; the bench checks that the
runtime of each program sees the shift, and that its processes have loaded the library). The job takes 50 ms and is due
every {results['settings']['skew_every']} s, for cron every minute. The last columns show when the job began, by the right
clock. A scheduler that gives the schedule to one of the hosts depends on the clock of that host.

"""
    text += picture("skew", "Share of occurrences that ran twice by program",
                    "Occurrences that ran twice", "two hosts, one clock 1.5 s behind", "%",
                    ["share"], plotted, linear=True)
    return text + "\n" + table(
        ["program", "occurrences that ran twice", "that did not run", "earliest start",
         "latest start"], rows)


def again(results):
    settings = results["settings"]
    minutes = round(results["minutes"] / results["rounds"]) if results["rounds"] else 0
    warning = "**This page is from a trial with few samples.** " if settings["quick"] else ""
    return f"""## Measure it yourself

```sh
make bench-peers            # three rounds
make bench-peers ROUNDS=1   # one round: {minutes} minutes on the machine above
```

{warning}You need root (for Debian's cron), Node.js with npm, Python 3.10 or later with venv, and the registries. The bench
installs below `target/peers` only. Run it on a machine that does nothing else: the table above shows its load.
"""
