"""Locks and unlocks N times with redis-py, and prints how long each cycle took, in microseconds."""

import json
import sys
import time

import redis

client = redis.Redis.from_url(sys.argv[1])
took = []
for n in range(-500, int(sys.argv[2])):
    began = time.perf_counter_ns()
    lock = client.lock("lock:cycle", timeout=10, blocking=False)
    assert lock.acquire()
    lock.release()
    if n >= 0:
        took.append((time.perf_counter_ns() - began) / 1000)
print(json.dumps(took))
