"""StrataKV beside RocksDict and py-lmdb, each in turn: pip install rocksdict lmdb.

Usage: python beside.py [DIRECTORY [RECORDS]]. Keys of 16 bytes, values of 100 bytes, in random order.
`synced`: a write returns when it survives a power cut; else when it survives the death of the process.
Prints a table of operations per second: the median of three rounds, in each of which every store is new.
"""

import pathlib
import random
import shutil
import statistics
import sys
import threading
import time

import lmdb
import rocksdict
import stratakv

SYNCED = 500
THREADS = 16


class Strata:
    def __init__(self, path, synced, **options):
        level = "power_loss" if synced else "process_crash"
        self.store = stratakv.open(path, durability=level, **options)
        self.put, self.get, self.get_many = self.store.put, self.store.get, self.store.get_many
        self.update, self.close = self.store.update, self.store.close
        self.scan = lambda: sum(1 for _ in self.store.items())


class Packed(Strata):
    def __init__(self, path, synced):
        super().__init__(path, synced, placement="packed")


class Hash(Strata):
    """Its records lie in a region that is mapped into memory: a file here, persistent memory elsewhere."""

    def __init__(self, path, synced):
        super().__init__(path, synced, engine="hash", region_bytes="256MiB")
        whole, self.store = self.store, self.store.collection("ordered")
        self.put, self.get, self.get_many = self.store.put, self.store.get, self.store.get_many
        self.update, self.close = self.store.update, whole.close


class Rocks:
    def __init__(self, path, synced):
        self.store = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
        options = rocksdict.WriteOptions()
        options.sync = synced
        self.store.set_write_options(options)
        self.put, self.get, self.close = self.store.__setitem__, self.store.get, self.store.close
        self.get_many = lambda keys: self.store.get(keys)
        self.scan = lambda: sum(1 for _ in self.store.items())

    def update(self, pairs):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        self.store.write(batch)


class Lmdb:
    def __init__(self, path, synced):
        self.store = lmdb.open(str(path), map_size=4 << 30, sync=synced)
        self.close = self.store.close

    def put(self, key, value):
        with self.store.begin(write=True) as txn:
            txn.put(key, value)

    def get(self, key):
        with self.store.begin() as txn:
            return txn.get(key)

    def get_many(self, keys):
        with self.store.begin() as txn:
            return [txn.get(key) for key in keys]

    def update(self, pairs):
        with self.store.begin(write=True) as txn:
            for key, value in pairs:
                txn.put(key, value)

    def scan(self):
        with self.store.begin() as txn:
            return sum(1 for _ in txn.cursor())


STORES = {"slab": Strata, "packed": Packed, "hash": Hash, "RocksDict": Rocks, "py-lmdb": Lmdb}


def timed(count, work):
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)


def chunks(values, length):
    return (values[at : at + length] for at in range(0, len(values), length))


def in_threads(pairs, put):
    def work(some):
        for key, value in some:
            put(key, value)

    threads = [threading.Thread(target=work, args=(some,)) for some in chunks(pairs, len(pairs) // THREADS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def synced_round(store, pairs):
    some, others = pairs[:SYNCED], pairs[SYNCED : 5 * SYNCED]
    yield "put, synced", timed(len(some), lambda: [store.put(*pair) for pair in some])
    yield f"put by {THREADS} threads, synced", timed(len(others), lambda: in_threads(others, store.put))
    yield "batches of 100, synced", timed(len(pairs), lambda: [store.update(some) for some in chunks(pairs, 100)])


def other_round(store, pairs, draw):
    keys = [key for key, _ in pairs]
    yield "put", timed(len(pairs), lambda: [store.put(*pair) for pair in pairs])
    draw.shuffle(keys)
    assert all(store.get(key) == value for key, value in pairs[:100])
    yield "get", timed(len(keys), lambda: [store.get(key) for key in keys])
    yield "get of 100 at once", timed(len(keys), lambda: [store.get_many(some) for some in chunks(keys, 100)])
    yield "scan", timed(len(keys), lambda: store.scan() == len(keys) or sys.exit("records are missing"))


def main(place="compare-data", records="20000"):
    place, found = pathlib.Path(place), {}
    for number in range(3):
        draw = random.Random(number)
        pairs = [(draw.randbytes(16), draw.randbytes(100)) for _ in range(int(records))]
        for name, kind in STORES.items():
            for synced in (True, False):
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                store = kind(place / "data", synced)
                for what, rate in synced_round(store, pairs) if synced else other_round(store, pairs, draw):
                    found.setdefault(what, {}).setdefault(name, []).append(rate)
                store.close()
    shutil.rmtree(place)
    print("| |", " | ".join(STORES), "|\n|---|" + "--:|" * len(STORES))
    for what, rates in found.items():
        print(f"| {what} |", " | ".join(f"{statistics.median(rates[name]):,.0f}" for name in STORES), "|")


if __name__ == "__main__":
    main(*sys.argv[1:])
