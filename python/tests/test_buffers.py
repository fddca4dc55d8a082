"""Buffers as arguments, and values that are read where they lie."""

import array
import gc
import random

import numpy
import pytest


def test_arguments_are_buffers(store):
    numbers = numpy.arange(1000, dtype=numpy.float64)
    strided = numpy.arange(10, dtype=numpy.uint8)[::2]
    store[bytearray(b"k1")] = memoryview(b"v1")
    store[memoryview(b"k2")] = array.array("i", [1, 2])
    store[b"k3"] = numbers
    store[b"k4"] = strided
    store[b"k5"] = memoryview(b"reversed")[::-1]
    assert store[b"k1"] == b"v1" and store[b"k2"] == array.array("i", [1, 2]).tobytes()
    assert store[b"k4"] == bytes([0, 2, 4, 6, 8]) and store[b"k5"] == b"desrever"
    assert numpy.array_equal(numpy.frombuffer(store.record(b"k3")), numbers)
    assert bytearray(b"k1") in store and store.delete(memoryview(b"k1"))


def test_what_was_given_may_change_afterwards(store):
    value = bytearray(b"before")
    store[b"k"] = value
    value[:] = b"after."
    assert store[b"k"] == b"before"


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 70_000, 3 << 20])
def test_values_are_read_in_place(any_store, length):
    value = random.Random(length).randbytes(length)
    any_store[b"k"] = value
    record = any_store.record(b"k")
    assert len(record) == length and record.value == value and bytes(record) == value
    view = memoryview(record)
    assert view.readonly and view.nbytes == length and view == value
    with pytest.raises(TypeError):
        memoryview(record)[:1] = b"x"


def test_a_view_keeps_its_value(any_store):
    """Also once the record is overwritten, the store closed, and nobody else has the record."""
    value = random.Random(7).randbytes(200_000)
    any_store[b"k"] = value
    view = memoryview(any_store.record(b"k"))
    part = view[1000:2000]
    for number in range(50):
        any_store[b"k"] = bytes([number]) * 200_000
    gc.collect()
    assert view == value
    any_store.close()
    del view
    gc.collect()
    assert part == value[1000:2000]


def test_a_small_record_is_not_copied(store):
    """Two views of one record are the same memory."""
    store[b"k"] = bytes(1 << 20)
    record = store.record(b"k")
    address = numpy.frombuffer(record, dtype=numpy.uint8).ctypes.data
    assert numpy.frombuffer(record, dtype=numpy.uint8).ctypes.data == address
