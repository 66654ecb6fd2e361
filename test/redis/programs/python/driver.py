"""Drives redis.lock.Lock: reads steps and prints outcomes, as driver_test.go describes.

    driver.py CLIENT ADDRESS
"""

import json
import sys

import redis
from redis.exceptions import LockError

CLIENTS = {
    "redis-py": {"thread_local": True},
    "redis-py, thread_local=False": {"thread_local": False},
}


class Driver:
    def __init__(self, client, address):
        host, port = address.rsplit(":", 1)
        self.conn = redis.Redis(host=host, port=int(port), socket_timeout=10)
        self.options = CLIENTS[client]
        self.locks = {}

    def acquire(self, key, ttl):
        lock = self.conn.lock(key, timeout=int(ttl) / 1000, **self.options)
        if not lock.acquire(blocking=False):
            return {"ok": False}
        self.locks[key] = lock
        return {"ok": True}

    def held(self, key):
        return {"ok": self.locks[key].owned()}

    def extend(self, key, ttl):
        """Adds to the TTL, replaces it, and resets it, which are three scripts."""
        lock = self.locks[key]
        lock.extend(1)
        lock.extend(2, replace_ttl=True)
        lock.timeout = int(ttl) / 1000
        return {"ok": lock.reacquire()}

    def release(self, key):
        self.locks[key].release()
        return {"ok": True}

    def ttl(self, key):
        return {"ttl": self.conn.pttl(key)}

    def execute(self, step, *arguments):
        try:
            return getattr(self, step)(*arguments)
        except LockError:  # the lock is not held
            return {"ok": False}
        except redis.RedisError as e:
            return {"error": str(e)}


def show(outcome):
    print(json.dumps(outcome), flush=True)


driver = Driver(*sys.argv[1:])
show({"version": redis.__version__})
for line in sys.stdin:
    show(driver.execute(*line.split()))
