"""A store as a mapping of bytes to bytes."""

from collections.abc import MutableMapping

import pytest

import stratakv


def test_a_store_is_a_mapping(ordered):
    store = ordered
    assert isinstance(store, MutableMapping)
    assert not store and len(store) == 0
    store[b"user:1"] = b"Ada"
    assert store[b"user:1"] == b"Ada" and b"user:1" in store and len(store) == 1 and store
    assert b"user:2" not in store and store.get(b"user:2") is None
    assert store.get(b"user:2", "nobody") == "nobody"
    with pytest.raises(KeyError) as missing:
        store[b"user:2"]
    assert missing.value.args == (b"user:2",)
    del store[b"user:1"]
    with pytest.raises(KeyError):
        del store[b"user:1"]
    assert not store


def test_an_empty_value_is_one(any_store):
    any_store[b"empty"] = b""
    assert any_store[b"empty"] == b"" and b"empty" in any_store
    assert bytes(any_store.record(b"empty")) == b"" and any_store.record(b"empty")


def test_setdefault_pop_update_clear(ordered):
    assert ordered.setdefault(b"a", b"1") == b"1" and ordered.setdefault(b"a", b"2") == b"1"
    assert ordered.pop(b"a") == b"1" and b"a" not in ordered
    assert ordered.pop(b"a", None) is None and ordered.pop(b"a", b"none") == b"none"
    with pytest.raises(KeyError):
        ordered.pop(b"a")
    with pytest.raises(TypeError):
        ordered.pop(b"a", 1, 2)
    ordered.update({b"b": b"2", b"c": b"3"})
    ordered.update([(b"d", b"4")])
    ordered.update((key, b"5") for key in (b"e", b"f"))
    assert dict(ordered) == {b"b": b"2", b"c": b"3", b"d": b"4", b"e": b"5", b"f": b"5"}
    assert ordered.popitem() == (b"f", b"5") and ordered.popitem(last=False) == (b"b", b"2")
    ordered.clear()
    assert len(ordered) == 0
    with pytest.raises(KeyError):
        ordered.popitem()


def test_update_is_all_or_nothing(store):
    with pytest.raises(stratakv.Usage):
        store.update([(b"a", b"1"), (b"", b"of no key")])
    with pytest.raises(TypeError):
        store.update([(b"a", b"1"), (b"b", "of str")])
    assert b"a" not in store


def test_get_many(any_store):
    any_store.update({b"%d" % number: b"v%d" % number for number in range(100)})
    keys = [b"%d" % number for number in range(90, 110)]
    expected = [b"v%d" % number if number < 100 else None for number in range(90, 110)]
    assert any_store.get_many(keys) == expected
    assert any_store.get_many(iter(())) == []


def test_it_is_there_after_another_opening(path):
    with stratakv.open(path) as store:
        store[b"k"] = b"v"
    assert repr(store) == f"<stratakv.Store {path}>" and store.path == path
    with stratakv.Store(path, create=False) as store:
        assert store[b"k"] == b"v" and store.engine == "slab"
    with stratakv.open(path, read_only=True) as store:
        assert store[b"k"] == b"v"
        with pytest.raises(stratakv.Error):
            store[b"k"] = b"w"


def test_counters_and_edits(any_store):
    store = any_store
    assert store.increment(b"n") == 1 and store.increment(b"n", 41) == 42
    assert store.decrement(b"n", 2) == 40 and store.increment(b"n", -50) == 0
    store[b"text"] = b"b"
    with pytest.raises(stratakv.Usage, match="no decimal number"):
        store.increment(b"text")
    with pytest.raises(stratakv.Usage, match="64 bits"):
        store.increment(b"n", 1 << 64)
    assert store.append(b"text", b"c") and store.prepend(b"text", b"a") and store[b"text"] == b"abc"
    assert not store.append(b"never", b"c") and not store.prepend(b"never", b"c")
    assert store.fetch_update(b"text", lambda old: old.upper()) == b"ABC" and store[b"text"] == b"ABC"
    assert store.fetch_update(b"new", lambda old: b"first" if old is None else old) == b"first"
    assert store.fetch_update(b"text", lambda old: None) is None and b"text" not in store
    with pytest.raises(ZeroDivisionError):
        store.fetch_update(b"new", lambda old: 1 / 0)
    with pytest.raises(TypeError):
        store.fetch_update(b"new", lambda old: "str")
    assert store[b"new"] == b"first"


def test_compare_and_set(any_store):
    store = any_store
    first = store.put(b"k", b"1", expect="absent")
    assert first is not None and store.put(b"k", b"2", expect="absent") is None
    assert store.record(b"k").version == first
    second = store.put(b"k", b"2", expect=first, flags=7)
    assert second > first and store.put(b"k", b"3", expect=first) is None
    record = store.record(b"k")
    assert (bytes(record), record.version, record.flags, record.expires_at) == (b"2", second, 7, None)
    assert store.put(b"k", b"4", expect="present") is not None
    assert store.put(b"never", b"4", expect="present") is None and store.record(b"never") is None
    with pytest.raises(stratakv.Usage, match="expect is"):
        store.put(b"k", b"5", expect="newer")


def test_delete(any_store):
    any_store[b"k"] = b"v"
    assert any_store.delete(b"k") and not any_store.delete(b"k")


def test_durability_of_one_write(store):
    store.put(b"k", b"v", durability="power_loss")
    with pytest.raises(stratakv.Usage, match="durability"):
        store.put(b"k", b"w", durability="eternal")
    store.sync()
    assert store[b"k"] == b"v" and store.stats()["records"] == 1
