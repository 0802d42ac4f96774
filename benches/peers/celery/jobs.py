"""Celery with RedBeat, as https://redbeat.readthedocs.io/en/latest/intro.html shows it.

`celery -A jobs beat` is the scheduler: each host has one, and RedBeat's lock lets one of them run.
`celery -A jobs worker` runs the tasks. Celery's own `crontab` has no seconds, so the schedules are
RedBeat's `rrule` (https://redbeat.readthedocs.io/en/latest/tasks.html).
"""

import json
import logging
import os
import subprocess
from datetime import datetime, timezone

from celery import Celery
from redbeat.schedules import rrule

URL = os.environ["PEERS_REDIS"]
with open(os.environ["PEERS_LIST"], encoding="utf-8") as file:
    WORK = json.load(file)

# No lines about runs: the others log none either. The line "ready" has to stay.
for talker in ("celery.app.trace", "celery.worker.strategy"):
    logging.getLogger(talker).setLevel(logging.WARNING)

app = Celery("jobs", broker=URL)
app.conf.update(
    timezone="UTC",
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    # The intro asks for these two: how often beat looks, and a lock that outlives five looks.
    beat_max_loop_interval=5,
    redbeat_lock_timeout=25,
    redbeat_redis_url=URL,
)


@app.task
def run():
    subprocess.run(WORK["command"], check=True)


def schedule(cron):
    """The rule of `* * * * * *`, `*/N * * * * *` or `S M H * * *`."""
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    second, minute, hour = cron.split()[:3]
    if minute == "*":
        begin = datetime.now(timezone.utc).replace(second=0, microsecond=0)
        interval = 1 if second == "*" else int(second.removeprefix("*/"))
        return rrule("SECONDLY", dtstart=begin, interval=interval)
    instant = today.replace(hour=int(hour), minute=int(minute), second=int(second))
    return rrule("DAILY", dtstart=instant)


app.conf.beat_schedule = {
    job["name"]: {"task": "jobs.run", "schedule": schedule(job["cron"])} for job in WORK["jobs"]
}
