"""Stores for asyncio: the same as `Store`, with methods to await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from ._stratakv import Batch, Collection, Port, Record, Store, Transaction
from .errors import Usage

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from typing_extensions import Unpack

    from ._stratakv import List, _Durability, _Expect, _Options, _Path, _Ttl

_T = TypeVar("_T")
_CHUNK = 256


class _NotOpen:
    """What stands for a store that is not open."""

    def __getattr__(self, _name: str) -> Any:
        raise Usage("the store is not open: use it in `async with AsyncStore(path) as store`")


_NOT_OPEN = cast(Any, _NotOpen())


class AsyncCollection:
    """A collection whose methods are awaited. Reads, writes and batches are futures of the library;
    everything else runs in threads of the event loop's executor."""

    def __init__(self, owner: AsyncStore, collection: Collection) -> None:
        self._owner = owner
        self._collection = collection

    @property
    def name(self) -> str | None:
        """Its name; None for the default collection of a store."""
        return self._collection.name

    @property
    def sync(self) -> Collection:
        """The same collection with methods that wait."""
        return self._collection

    @overload
    async def get(self, key: ReadableBuffer, default: None = None, /) -> bytes | None: ...

    @overload
    async def get(self, key: ReadableBuffer, default: _T, /) -> bytes | _T: ...

    async def get(self, key: ReadableBuffer, default: Any = None, /) -> Any:
        """The value of a key, or `default`."""
        value = await self._owner._port.run("get", self._collection, key, False)
        return default if value is None else value

    async def record(self, key: ReadableBuffer, /) -> Record | None:
        """The record of a key; None if there is none."""
        return cast("Record | None", await self._owner._port.run("get", self._collection, key, True))

    async def get_many(self, keys: Iterable[ReadableBuffer], /) -> list[bytes | None]:
        """The values of several keys, None where there is none. Their reads overlap."""
        return await asyncio.gather(*(self.get(key) for key in keys))

    async def put(
        self,
        key: ReadableBuffer,
        value: ReadableBuffer,
        /,
        *,
        ttl: _Ttl | None = None,
        flags: int = 0,
        expect: _Expect | None = None,
        durability: _Durability | None = None,
    ) -> int | None:
        """Writes a record, as `Collection.put`."""
        arguments = (self._collection, key, value, ttl, flags, expect, durability)
        return cast("int | None", await self._owner._port.run("put", *arguments))

    async def delete(self, key: ReadableBuffer, /) -> bool:
        """Removes a record; whether there was one."""
        return cast(bool, await self._owner._port.run("delete", self._collection, key))

    async def delete_range(self, start: ReadableBuffer | None = None, end: ReadableBuffer | None = None) -> int:
        """Removes the keys from `start` up to, not including, `end`; how many. Not one step."""
        return cast(int, await self._owner._port.run("delete_range", self._collection, start=start, end=end))

    async def delete_prefix(self, prefix: ReadableBuffer, /) -> int:
        """Removes the keys that begin with `prefix`; how many. Not one step."""
        return cast(int, await self._owner._port.run("delete_range", self._collection, prefix=prefix))

    def keys(self, **extent: Any) -> AsyncIterator[bytes]:
        """An asynchronous iterator over keys; arguments as of `Collection.keys`."""
        return _iterate(self._collection.keys(**extent))

    def values(self, **extent: Any) -> AsyncIterator[bytes]:
        """An asynchronous iterator over values; arguments as of `Collection.values`."""
        return _iterate(self._collection.values(**extent))

    def items(self, **extent: Any) -> AsyncIterator[tuple[bytes, bytes]]:
        """An asynchronous iterator over (key, value); arguments as of `Collection.items`."""
        return _iterate(self._collection.items(**extent))

    def records(self, **extent: Any) -> AsyncIterator[tuple[bytes, Record]]:
        """An asynchronous iterator over (key, record); arguments as of `Collection.records`."""
        return _iterate(self._collection.records(**extent))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys()

    async def call(self, method: str, /, *arguments: Any, **keywords: Any) -> Any:
        """Calls any other method of the collection, by its name, in a thread of the executor:
        `await store.call("increment", b"visits")`."""
        return await asyncio.to_thread(getattr(self._collection, method), *arguments, **keywords)


class AsyncStore(AsyncCollection):
    """A store for one event loop: `async with AsyncStore(path, **options) as store`. It is an
    asynchronous mapping too, its default collection. Options are those of `open`."""

    def __init__(self, path: _Path, /, **options: Unpack[_Options]) -> None:
        super().__init__(self, _NOT_OPEN)
        self._path = path
        self._options = options
        self._port: _Waiters = _NOT_OPEN

    async def open(self) -> Self:
        """Opens the store; `async with` does it."""
        if self._collection is _NOT_OPEN:
            self._collection = await asyncio.to_thread(Store, self._path, **self._options)
            self._port = _Waiters(asyncio.get_running_loop())
        return self

    async def close(self) -> None:
        """Finishes what is in flight, makes it durable, and lets the directory go."""
        if self._collection is not _NOT_OPEN:
            await asyncio.to_thread(self.sync.close)
            self._port.close()

    @property
    def sync(self) -> Store:
        """The same store with methods that wait."""
        return cast(Store, self._collection)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def collection(self, name: str, /, *, create: bool = True) -> AsyncCollection:
        """The collection of that name, as `Store.collection`."""
        return AsyncCollection(self, await self.call("collection", name, create=create))

    def batch(self) -> AsyncBatch:
        """An empty batch, to be given to `write`; or `async with store.batch() as batch`."""
        return AsyncBatch(self)

    async def write(self, batch: Batch | AsyncBatch, /) -> int:
        """Makes all changes of a batch; their version. One that puts into lists takes a thread."""
        if isinstance(batch, AsyncBatch):
            batch = batch.changes
        if batch.has_pushes:
            return await asyncio.to_thread(batch.write)
        return cast(int, await self._port.run("write", self._collection, batch))

    async def transact(self, function: Callable[[Transaction], _T], /) -> _T:
        """Runs function(transaction), an ordinary function, in a thread, as `Store.transact`."""
        return cast(_T, await self.call("transact", function))

    async def backup(self, directory: _Path, /) -> int:
        """Writes a backup of one moment; how many records it holds."""
        return cast(int, await self.call("backup", directory))


class AsyncBatch:
    """A batch that is written at the end of an `async with` block, unless the block raises."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self.changes = store.sync.batch()

    def put(self, key: ReadableBuffer, value: ReadableBuffer, /, **options: Any) -> None:
        """Sets a key, as `Batch.put`."""
        self.changes.put(key, value, **options)

    def delete(self, key: ReadableBuffer, /, **options: Any) -> None:
        """Removes a key, as `Batch.delete`."""
        self.changes.delete(key, **options)

    def append(self, list_: List, value: ReadableBuffer, /) -> None:
        """Puts an element behind the last one of a list."""
        self.changes.append(list_, value)

    def __setitem__(self, key: ReadableBuffer, value: ReadableBuffer) -> None:
        self.changes[key] = value

    def __delitem__(self, key: ReadableBuffer) -> None:
        del self.changes[key]

    def __len__(self) -> int:
        return len(self.changes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, raised: object, _value: object, _trace: object) -> None:
        if raised is None:
            await self._store.write(self.changes)


class _Waiters:
    """Who waits for which operation of a port."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._port = Port()
        self._futures: dict[int, asyncio.Future[Any]] = {}
        loop.add_reader(self._port.fileno(), self._drain)

    async def run(self, operation: str, /, *arguments: Any, **keywords: Any) -> Any:
        if asyncio.get_running_loop() is not self._loop:
            raise Usage("the store was opened in another event loop: use it there")
        number, value = getattr(self._port, operation)(*arguments, **keywords)
        if number is None:
            return value
        future = self._futures[number] = self._loop.create_future()
        try:
            return await future
        finally:
            if self._futures.pop(number, None) is not None:
                self._port.forget(number)

    def _drain(self) -> None:
        for number, value, error in self._port.drain():
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def close(self) -> None:
        self._drain()
        self._loop.remove_reader(self._port.fileno())


async def _iterate(walk: Iterator[_T]) -> AsyncIterator[_T]:
    """Items of an iterator that waits, fetched in threads, some hundred at a time."""

    def fetch() -> tuple[list[_T], Exception | None]:
        items: list[_T] = []
        try:
            items.extend(islice(walk, _CHUNK))
        except Exception as error:  # what came before it is given first
            return items, error
        return items, None

    while True:
        items, error = await asyncio.to_thread(fetch)
        for item in items:
            yield item
        if error is not None:
            raise error
        if len(items) < _CHUNK:
            return
