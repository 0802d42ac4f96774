"""APScheduler with redis-py's Lock.

The scheduler and its options are those of https://apscheduler.readthedocs.io/en/3.x/userguide.html,
the lock that of https://redis.readthedocs.io/en/stable/lock.html. Two defaults would lose jobs that
are due at once: ten threads, and a grace of one second after which a run counts as missed.
"""

import json
import subprocess
import sys

import redis
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.cron import CronTrigger

url, path = sys.argv[1:3]
with open(path, encoding="utf-8") as file:
    work = json.load(file)
client = redis.Redis.from_url(url)


def run(name):
    # Who finds the lock taken skips the job instead of waiting for it.
    lock = client.lock("lock:" + name, timeout=30, blocking=False)
    if not lock.acquire():
        return
    try:
        subprocess.run(work["command"], check=True)
    finally:
        lock.release()


scheduler = BlockingScheduler(
    executors={"default": ThreadPoolExecutor(50)},
    job_defaults={"misfire_grace_time": None},
    timezone="UTC",
)
for job in work["jobs"]:
    second, minute, hour, day, month, weekday = job["cron"].split()
    trigger = CronTrigger(
        second=second, minute=minute, hour=hour, day=day, month=month, day_of_week=weekday,
        timezone="UTC",
    )
    scheduler.add_job(run, trigger, args=[job["name"]], id=job["name"])
print("ready", flush=True)
scheduler.start()
