"""What the tests begin from: a new store of each engine."""

import pytest

import stratakv

# Small, so that a test opens it in no time.
ENGINES = {
    "in_place": {"engine": "slab", "placement": "in_place"},
    "packed": {"engine": "slab", "placement": "packed"},
    "hash": {"engine": "hash", "region_bytes": "32MiB"},
    "matrix": {"engine": "matrix", "region_bytes": "32MiB"},
}
SMALL = {"memory_bytes": "64MiB", "durability": "process_crash"}


def small(engine):
    shards = {} if engine == "hash" else {"shards": 2}
    return {**ENGINES[engine], **SMALL, **shards}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


@pytest.fixture(params=ENGINES)
def any_store(request, path):
    """A store of each engine. (The default collection of `hash` has no order.)"""
    with stratakv.open(path, **small(request.param)) as store:
        yield store


@pytest.fixture(params=ENGINES)
def ordered(request, path):
    """A collection in order, of a store of each engine."""
    with stratakv.open(path, **small(request.param)) as store:
        yield store if request.param != "hash" else store.collection("ordered")


@pytest.fixture
def store(path):
    """A store as `open` makes it, but for its size."""
    with stratakv.open(path, **SMALL) as store:
        yield store
