"""Lists, batches, transactions, snapshots, expiry: what a store holds beside one record."""

import threading
import time
from datetime import timedelta

import pytest

import stratakv
from conftest import small


def test_a_list_is_a_deque(any_store):
    tasks = any_store.list("tasks")
    assert not tasks and len(tasks) == 0 and tasks.name == "tasks"
    for empty in (tasks.pop, tasks.popleft, lambda: tasks[0], lambda: tasks[-1], lambda: tasks.__delitem__(0)):
        with pytest.raises(IndexError):
            empty()
    tasks.append(b"b")
    tasks.appendleft(b"a")
    tasks.extend([b"c", b"d"])
    assert list(tasks) == [b"a", b"b", b"c", b"d"] and list(reversed(tasks)) == [b"d", b"c", b"b", b"a"]
    assert tasks[0] == b"a" and tasks[-1] == b"d" and len(tasks) == 4 and tasks
    tasks[1] = b"B"
    del tasks[-1]
    assert list(tasks) == [b"a", b"B", b"c"]
    assert tasks.popleft() == b"a" and tasks.pop() == b"c" and list(tasks) == [b"B"]
    tasks.extend(b"%d" % number for number in range(2000))
    assert list(tasks) == [b"B"] + [b"%d" % number for number in range(2000)]
    assert tasks.pop_many(2) == [b"B", b"0"] and tasks.pop_many(2, left=False) == [b"1999", b"1998"]


@pytest.mark.parametrize("index", range(-5, 6))
def test_insert_is_that_of_pythons_lists(store, index):
    ours, theirs = store.list("ours"), [b"a", b"b", b"c"]
    ours.extend(theirs)
    ours.insert(index, b"new")
    theirs.insert(index, b"new")
    assert list(ours) == theirs


def test_elements_move_between_lists(store):
    todo, done = store.list("todo"), store.list("done")
    todo.extend([b"1", b"2", b"3"])
    assert todo.move_to(done) == b"1" and todo.move_to(done) == b"2" and list(done) == [b"1", b"2"]
    assert todo.move_to(done, from_left=False, to_left=True) == b"3" and list(done) == [b"3", b"1", b"2"]
    assert todo.move_to(done) is None


def test_names(store):
    store.collection("c")[b"k"] = b"v"
    store.list("l").append(b"1")
    assert sorted(store.names()) == ["c", "l"]
    assert b"k" not in store and store.collection("c", create=False)[b"k"] == b"v"
    for absent in (lambda: store.collection("x", create=False), lambda: store.list("x", create=False)):
        with pytest.raises(KeyError):
            absent()
    with pytest.raises(stratakv.Usage, match="is a list"):
        store.collection("l")
    assert repr(store.collection("c")) == f"<stratakv.Collection 'c' of {store.path}>".replace("'", '"')
    assert store.drop("c") and not store.drop("c") and store.names() == ["l"]


def test_expiry(any_store):
    store = any_store
    store.put(b"soon", b"v", ttl=0.05)
    store.put(b"later", b"v", ttl=timedelta(hours=1))
    store[b"never"] = b"v"
    assert 3590 < store.ttl(b"later") <= 3600 and store.ttl(b"never") is None
    assert abs(store.record(b"later").expires_at - time.time() - 3600) < 10
    with pytest.raises(KeyError):
        store.ttl(b"absent")
    assert store.expire(b"never", 10) and store.ttl(b"never") <= 10 and not store.expire(b"absent", 10)
    assert store.expire(b"never", None) and store.ttl(b"never") is None
    while b"soon" in store:
        time.sleep(0.01)
    assert store.get(b"soon") is None
    for wrong in (0, -1, float("nan"), float("inf"), timedelta(0)):
        with pytest.raises(stratakv.Usage, match="ttl"):
            store.put(b"k", b"v", ttl=wrong)
    with pytest.raises(TypeError, match="ttl"):
        store.put(b"k", b"v", ttl="1h")
    store.put(b"far", b"v", ttl=1e300)
    assert store.ttl(b"far") > 70 * 365 * 86400


def test_collections_expire(store):
    store.collection("c")[b"k"] = b"v"
    assert store.expire_collection("c", 0.05) and not store.expire_collection("absent", 1)
    while "c" in store.names():
        time.sleep(0.01)


def test_batches_are_all_or_nothing(any_store):
    store, users, log = any_store, any_store.collection("users"), any_store.list("log")
    store[b"gone"] = b"1"
    with store.batch() as batch:
        batch[b"a"] = b"1"
        batch.put(b"u", b"2", collection=users, ttl=100, flags=3)
        del batch[b"gone"]
        batch.append(log, b"second")
        batch.appendleft(log, b"first")
        assert len(batch) == 5 and b"a" not in store
    assert store[b"a"] == b"1" and users[b"u"] == b"2" and users.record(b"u").flags == 3 and users.ttl(b"u") <= 100
    assert b"gone" not in store and list(log) == [b"first", b"second"]

    with pytest.raises(stratakv.Conflict, match="a condition of the batch"), store.batch() as batch:
        batch[b"b"] = b"1"
        batch.put(b"a", b"2", expect="absent")
    with pytest.raises(ZeroDivisionError), store.batch() as batch:
        batch[b"b"] = b"1"
        1 / 0
    assert b"b" not in store and store[b"a"] == b"1"

    batch = store.batch()
    batch.delete(b"a", expect=store.record(b"a").version)
    assert batch.write() > 0 and b"a" not in store
    with pytest.raises(stratakv.Usage, match="begin another one"):
        batch.write()
    with pytest.raises(stratakv.Usage, match="begin another one"):
        batch[b"c"] = b"1"


def test_transactions(any_store):
    store, users, tasks = any_store, any_store.collection("users"), any_store.list("tasks")
    store[b"n"] = b"1"
    tasks.append(b"wash")
    with store.transaction() as txn:
        assert txn[b"n"] == b"1" and b"x" not in txn and txn.get(b"x", 7) == 7
        txn[b"n"] = b"2"
        assert txn[b"n"] == b"2" and store[b"n"] == b"1"
        txn.put(b"u", txn.popleft(tasks), collection=users)
        assert txn.pop(tasks) is None and txn.get(b"u", collection=users) == b"wash"
        txn.append(tasks, b"dry")
        assert not txn.put(b"n", b"3", expect="absent") and txn.record(b"n").version == 0
    assert store[b"n"] == b"2" and users[b"u"] == b"wash" and list(tasks) == [b"dry"]
    with pytest.raises(stratakv.Usage, match="has ended"):
        txn[b"n"]
    with pytest.raises(KeyError), store.transaction() as txn:
        txn[b"n"] = b"4"
        del txn[b"x"]
    assert store[b"n"] == b"2"
    txn.rollback()


def test_a_transaction_meets_a_conflict(store):
    store[b"n"] = b"1"
    with pytest.raises(stratakv.Conflict, match="changed by somebody else"), store.transaction() as txn:
        txn[b"m"] = txn[b"n"]
        store[b"n"] = b"2"
    assert b"m" not in store


def test_transact_begins_again(store):
    store[b"n"] = b"0"
    runs = []

    def add(txn):
        runs.append(1)
        txn[b"n"] = b"%d" % (int(txn[b"n"]) + 1)
        return len(runs)

    threads = [threading.Thread(target=lambda: [store.transact(add) for _ in range(20)]) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert store[b"n"] == b"80" and len(runs) >= 80

    def interfered(txn):
        store[b"n"] = txn[b"n"]
        txn[b"m"] = b"1"

    with pytest.raises(stratakv.Conflict, match="100 times"):
        store.transact(interfered)
    with pytest.raises(ZeroDivisionError):
        store.transact(lambda txn: 1 / 0)
    with pytest.raises(stratakv.Usage, match="leaves the commit"):
        store.transact(lambda txn: txn.rollback())


@pytest.mark.parametrize("engine", ["hash", "matrix"])
def test_snapshots(path, engine):
    with stratakv.open(path, **small(engine)) as store:
        users = store.collection("users")
        store[b"k"], users[b"a"], users[b"b"] = b"old", b"1", b"2"
        with store.snapshot() as then:
            store[b"k"], users[b"c"] = b"new", b"3"
            del users[b"a"]
            assert then[b"k"] == b"old" and b"x" not in then and then.get(b"x", 7) == 7
            assert then.get(b"a", collection=users) == b"1" and then.record(b"c", collection=users) is None
            assert list(then.items(collection=users)) == [(b"a", b"1"), (b"b", b"2")]
            assert list(then.items(collection=users, reverse=True, start=b"b")) == [(b"b", b"2")]
            walk = then.items(collection=users)
        assert list(walk) == [(b"a", b"1"), (b"b", b"2")]
        with pytest.raises(stratakv.Usage, match="is closed"):
            then[b"k"]
        with pytest.raises(KeyError):
            store.snapshot()[b"x"]


def test_slab_has_no_snapshots(store):
    with pytest.raises(stratakv.Unsupported):
        store.snapshot()


def test_backups(store, tmp_path):
    store.update({b"a": b"1", b"b": b"2"})
    store.list("l").append(b"3")
    records = store.backup(tmp_path / "sunday")
    assert records >= 3
    assert stratakv.restore(tmp_path / "sunday", tmp_path / "copy", durability="process_crash") == records
    with stratakv.open(tmp_path / "copy") as copy:
        assert dict(copy) == {b"a": b"1", b"b": b"2"} and list(copy.list("l")) == [b"3"]
    with pytest.raises(stratakv.Usage, match="not empty"):
        store.backup(tmp_path / "sunday")
    with pytest.raises(stratakv.Error):
        stratakv.restore(tmp_path / "monday", tmp_path / "other")
