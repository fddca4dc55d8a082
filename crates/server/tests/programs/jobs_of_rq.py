"""Jobs that rq_session.py enqueues; the worker imports them."""


def add(one, other):
    return one + other


def fail():
    raise ValueError("on purpose")
