"""Iterators in the order of keys, forward and back."""

import pytest

import stratakv
from conftest import small

KEYS = [b"a", b"b:1", b"b:2", b"b:3", b"c"]


@pytest.fixture
def five(ordered):
    ordered.update((key, b"of " + key) for key in KEYS)
    return ordered


def test_all_keys_values_items(five):
    assert list(five) == KEYS and list(reversed(five)) == KEYS[::-1]
    assert list(five.keys()) == KEYS
    assert list(five.values()) == [b"of " + key for key in KEYS]
    assert list(five.items(reverse=True)) == [(key, b"of " + key) for key in KEYS[::-1]]
    assert [(key, bytes(record)) for key, record in five.records()] == list(five.items())


def test_bounds_and_prefixes(five):
    assert list(five.keys(prefix=b"b:")) == KEYS[1:4]
    assert list(five.keys(prefix=b"b:", reverse=True)) == KEYS[3:0:-1]
    assert list(five.keys(prefix=b"")) == KEYS and list(five.keys(prefix=b"x")) == []
    assert list(five.keys(start=b"b:2")) == KEYS[2:] and list(five.keys(end=b"b:2")) == KEYS[:2]
    assert list(five.keys(start=b"b:1", end=b"b:3")) == KEYS[1:3]
    assert list(five.keys(start=b"b:1", end=b"b:3", include_start=False, include_end=True)) == KEYS[2:4]
    assert list(five.keys(start=b"b:1", end=b"b:3", reverse=True)) == KEYS[2:0:-1]
    assert list(five.keys(start=b"c", end=b"a")) == []
    assert list(five.values(start=b"c")) == [b"of c"]
    assert stratakv.Scan[bytes] is not None
    with pytest.raises(stratakv.Usage, match="not both"):
        five.items(prefix=b"b", start=b"a")


def test_ranges_are_deleted(five):
    assert five.delete_prefix(b"b:") == 3 and list(five) == [b"a", b"c"]
    assert five.delete_range(b"b", None) == 1 and five.delete_range(end=b"b") == 1 and not five


def test_long_scans(ordered):
    pairs = [(b"%06d" % number, b"v" * (number % 50)) for number in range(3000)]
    assert ordered.load(pairs) == 3000
    assert list(ordered.items()) == pairs and list(ordered.items(reverse=True)) == pairs[::-1]
    assert len(ordered) == 3000
    walk = ordered.items()
    assert next(walk) == pairs[0] and [next(walk) for _ in range(500)] == pairs[1:501]


def test_a_load_is_in_order(ordered):
    with pytest.raises(stratakv.Usage):
        ordered.load([(b"b", b"1"), (b"a", b"2")])


def test_deleting_while_iterating(five):
    for key in five:
        del five[key]
    assert not five


def test_the_default_collection_of_hash_has_no_order(path):
    with stratakv.open(path, **small("hash")) as store:
        store[b"a"] = b"1"
        for ordered in (lambda: list(store), lambda: len(store), lambda: store.popitem()):
            with pytest.raises(stratakv.Unsupported, match="no order of keys"):
                ordered()
        assert store[b"a"] == b"1" and store.pop(b"a") == b"1"
