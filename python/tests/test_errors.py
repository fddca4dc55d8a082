"""Failures by their kind, with the library's own texts."""

import subprocess
import sys

import pytest

import stratakv
from conftest import SMALL


def test_there_is_no_store(path):
    with pytest.raises(stratakv.NotFound, match="there is no store"):
        stratakv.open(path, create=False)
    assert not path.exists()


def test_a_store_is_open_here(path, store):
    with pytest.raises(stratakv.Locked, match="open already in this process"):
        stratakv.open(path)


def test_a_store_is_open_elsewhere(path, store):
    code = f"import stratakv\ntry: stratakv.open({str(path)!r})\nexcept stratakv.Locked as error: print(error)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "is open in another process" in told.stdout and str(store.path) in told.stdout


def test_a_closed_store(store):
    walk = store.items()
    store.close()
    store.close()
    for use in (lambda: store[b"k"], lambda: store.put(b"k", b"v"), store.sync, lambda: len(store), lambda: next(walk)):
        with pytest.raises(stratakv.Closed):
            use()


def test_options_that_there_are_not(path):
    for wrong, text in [
        ({"colour": "blue"}, "there is no option colour"),
        ({"engine": "steam"}, "'steam'|\"steam\" is not one of slab, hash, matrix, tier"),
        ({"memory_bytes": "much"}, "option memory_bytes"),
        ({"memory_bytes": -1}, "option memory_bytes"),
        ({"memory_bytes": 1.5}, "option memory_bytes"),
        ({"shards": True}, "option shards"),
        ({"shards": "two"}, "option shards"),
        ({"create": "yes"}, "True or False"),
        ({"durability": "eternal"}, "durability"),
        ({"directory": [1]}, "a path, or a list of paths"),
    ]:
        with pytest.raises(stratakv.Usage, match=text):
            stratakv.open(path, **wrong)
    assert not path.exists()


def test_options_of_other_engines(path):
    with pytest.raises(stratakv.Usage):
        stratakv.open(path, engine="slab", region_bytes="1GiB")
    stratakv.open(path, shards=3, memory_bytes=64 << 20, capacity_bytes=None).close()
    with pytest.raises(stratakv.Usage):
        stratakv.open(path, engine="hash")


def test_keys_and_values_that_cannot_be(store):
    for key in (b"", b"k" * 65536):
        with pytest.raises(stratakv.Usage):
            store[key] = b"v"
    with pytest.raises(stratakv.Usage, match="too large|at most|longest|64"):
        store[b"k"] = bytes((64 << 20) + 1)
    for wrong in ("text", 7, None, [1, 2], object()):
        with pytest.raises(TypeError, match="keys and values are bytes"):
            store[wrong]
        with pytest.raises(TypeError, match="keys and values are bytes"):
            store[b"k"] = wrong
    assert not store


def test_damage_is_told(path):
    marked = b"damage me" * 10
    with stratakv.open(path, **SMALL) as store:
        store.update((b"%04d" % number, marked if number == 500 else b"v" * 90) for number in range(1000))
    assert stratakv.check(path) == 1000
    for volume in (file for file in path.glob("**/*") if file.is_file()):
        image = volume.read_bytes()
        if marked in image:
            volume.write_bytes(image.replace(marked, b"D" + marked[1:]))
    with pytest.raises(stratakv.Corruption, match="\n"):
        stratakv.check(path)
    with stratakv.open(path, **SMALL) as store:
        right, damaged = 0, 0
        walk = store.items()
        while True:
            try:
                next(walk)
                right += 1
            except StopIteration:
                break
            except stratakv.Corruption:
                damaged += 1
        assert damaged > 0 and right > 900


def test_exceptions_have_bases():
    assert issubclass(stratakv.Usage, ValueError) and issubclass(stratakv.DeviceError, OSError)
    assert issubclass(stratakv.Conflict, stratakv.Busy)
    kinds = ["Usage", "NotFound", "Corruption", "Locked", "Full", "Unsupported", "DeviceError", "Closed", "Unknown", "Busy"]
    assert all(issubclass(getattr(stratakv, kind), stratakv.Error) for kind in kinds)


def test_a_full_store(path):
    with stratakv.open(path, capacity_bytes="8MiB", **SMALL) as store, pytest.raises(stratakv.Full):
        for number in range(100):
            store[b"%d" % number] = bytes(1 << 20)
