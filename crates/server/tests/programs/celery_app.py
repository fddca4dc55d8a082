"""Tasks of celery_session.py; the worker imports them."""
import os

from celery import Celery

url = "redis://127.0.0.1:%s/0" % os.environ["PROGRAM_PORT"]
app = Celery("celery_app", broker=url, backend=url)
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    result_expires=600,
    # With it kombu guards what it gives back by a lock, whose release is a script.
    broker_transport_options={"ack_emulation": False},
)


@app.task
def add(one, other):
    return one + other


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def at_the_third(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return self.request.retries


@app.task
def fail():
    raise ValueError("on purpose")
