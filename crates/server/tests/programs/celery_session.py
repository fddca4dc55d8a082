"""Celery with broker and results: tasks, a chain, a group, a chord, retries. Arguments: the port."""
import os
import signal
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
os.environ["PROGRAM_PORT"] = sys.argv[1]
sys.path.insert(0, here)
import kombu.transport.redis
from celery import chain, chord, group

if hasattr(kombu.transport.redis, "REFRESH_BINDING"):
    print("skipped: kombu %s needs scripts for its bindings (EVALSHA)" % kombu.__version__)
    sys.exit(0)

import celery_app

arguments = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo", "--loglevel", "WARNING"]
worker = subprocess.Popen(arguments + ["--without-gossip", "--without-mingle"], cwd=here)
# Seconds. The worker has to start.
WAIT = 150


try:
    assert celery_app.add.delay(2, 3).get(timeout=WAIT) == 5
    assert [celery_app.add.delay(n, n).get(timeout=WAIT) for n in range(10)] == [2 * n for n in range(10)]
    failed = celery_app.fail.delay()
    try:
        failed.get(timeout=WAIT)
        raise SystemExit("a failed task has a result")
    except ValueError as error:
        assert "on purpose" in str(error)
    assert celery_app.at_the_third.delay().get(timeout=WAIT) == 2
    assert chain(celery_app.add.s(1, 2), celery_app.add.s(10), celery_app.add.s(100))().get(timeout=WAIT) == 113
    assert group(celery_app.add.s(n, 1) for n in range(8))().get(timeout=WAIT) == list(range(1, 9))
    assert chord((celery_app.add.s(n, 1) for n in range(8)), celery_app.total.s())().get(timeout=WAIT) == 36
finally:
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(20)
    except subprocess.TimeoutExpired:
        worker.kill()
print("ok")
