"""Many threads, and children of fork."""

import os
import sys
import threading

import pytest

import stratakv
from conftest import small


def test_many_threads(any_store):
    failures = []

    def work(thread):
        try:
            for number in range(200):
                key = b"%d.%d" % (thread, number)
                any_store[key] = key * 10
                assert any_store[key] == key * 10
                any_store.increment(b"count")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures and any_store[b"count"] == b"1600"


def test_threads_share_an_iterator(ordered):
    ordered.load((b"%05d" % number, b"v") for number in range(5000))
    walk, found = ordered.keys(), [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda into: into.extend(walk), args=(into,)) for into in found]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(key for some in found for key in some) == list(ordered)


@pytest.fixture
def only_by_release():
    """The interpreter goes to another thread only where this one releases its lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("call", ["put", "get", "scan", "sync", "append", "write", "transact", "close", "nothing"])
def test_the_interpreter_goes_on_while_a_call_waits(path, call, only_by_release):
    with stratakv.open(path, **small("in_place")) as store:
        store[b"k"] = b"v"
        tasks = store.list("tasks")

        def write():
            with store.batch() as batch:
                batch[b"n"] = b"1"

        calls = {
            "put": lambda: store.put(b"n", b"1"),
            "get": lambda: store.get(b"k"),
            "scan": lambda: next(store.items()),
            "sync": store.sync,
            "append": lambda: tasks.append(b"1"),
            "write": write,
            "transact": lambda: store.transact(len_of),
            "close": store.close,
            "nothing": lambda: None,
        }
        barrier, ran = threading.Lock(), []
        barrier.acquire()

        def other():
            barrier.acquire()
            ran.append(1)

        def waits():
            # A get that the cache answers may be over before the other thread is awake.
            for _ in range(1000):
                calls[call]()
                if ran:
                    return True
            return bool(ran)

        thread = threading.Thread(target=other)
        thread.start()
        barrier.release()
        has_run = waits()
        thread.join()
        assert has_run == (call != "nothing")


def len_of(txn):
    txn[b"n"] = b"1"


def in_child(code):
    """Runs a function in a forked child; what it returned, as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = str(code())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


@pytest.mark.parametrize("engine", ["in_place", "hash", "matrix"])
def test_a_forked_child_is_refused(path, engine, tmp_path):
    with stratakv.open(path, **small(engine)) as store:
        store[b"k"] = b"v"
        tasks = store.list("tasks")
        uses = {
            "get": lambda: store[b"k"],
            "put": lambda: store.put(b"k", b"w"),
            "append": lambda: tasks.append(b"1"),
            "close": lambda: store.close(),
            "batch": lambda: store.update({b"k": b"w"}),
        }
        for name, use in uses.items():
            assert in_child(use).startswith("Closed: "), name
        store[b"after"] = b"v"
        assert store[b"k"] == b"v" and not tasks
    # A child opens a store of its own.
    assert in_child(lambda: stratakv.open(path, **small(engine))[b"after"]) == "b'v'"
