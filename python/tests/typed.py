"""What types the library has: checked by mypy, not run. A line of which mypy must complain says so:
`--strict` refuses a complaint that does not come."""

import asyncio
from collections.abc import Iterator
from typing import assert_type

import stratakv


def mappings(store: stratakv.Store) -> None:
    store[b"k"] = bytearray(b"v")
    store[memoryview(b"k")] = b"v"
    assert_type(store[b"k"], bytes)
    assert_type(store.get(b"k"), bytes | None)
    assert_type(store.get(b"k", 7), bytes | int)
    assert_type(store.put(b"k", b"v", ttl=1.5), int)
    assert_type(store.put(b"k", b"v", expect="absent"), int | None)
    assert_type(store.pop(b"k", None), bytes | None)
    store["k"]  # type: ignore[index]
    store[b"k"] = 7  # type: ignore[assignment]
    store.put(b"k", b"v", expect="newer")  # type: ignore[call-overload]
    for key, value in store.items(prefix=b"k"):
        assert_type((key, value), tuple[bytes, bytes])
    keys: Iterator[bytes] = store.keys(reverse=True)
    assert_type(next(keys), bytes)
    store.update({b"a": b"1"})
    store.update((key, b"1") for key in store)
    record = store.record(b"k")
    if record is not None:
        assert_type(memoryview(record)[0], int)
        assert_type(bytes(record), bytes)
        record.version = 7  # type: ignore[misc]


def structures(store: stratakv.Store) -> None:
    assert_type(store.transact(lambda txn: txn.get(b"k")), bytes | None)
    with store.batch() as batch, store.transaction() as txn:
        batch.append(store.list("l"), b"v")
        assert_type(txn.popleft(store.list("l")), bytes | None)
    assert_type(list(store.list("l")), list[bytes])
    assert_type(store.collection("c").ttl(b"k"), float | None)


def opening() -> None:
    assert_type(stratakv.open("data", engine="hash", memory_bytes="1GiB"), stratakv.Store)
    stratakv.open("data", engine="steam")  # type: ignore[arg-type]
    stratakv.open("data", colour="blue")  # type: ignore[call-arg]
    try:
        stratakv.check("data")
    except (stratakv.Corruption, stratakv.Usage) as error:
        assert_type(error, stratakv.Corruption | stratakv.Usage)


async def asynchronous() -> None:
    async with stratakv.AsyncStore("data", create=False) as store:
        assert_type(await store.get(b"k"), bytes | None)
        assert_type(await store.get(b"k", 7), bytes | int)
        assert_type(await store.put(b"k", b"v"), int | None)
        async for key, value in store.items():
            assert_type((key, value), tuple[bytes, bytes])
        await asyncio.gather(store.get(b"a"), store.delete(b"b"))
        await store.get("k")  # type: ignore[call-overload]
        await store.wait()  # type: ignore[attr-defined]
