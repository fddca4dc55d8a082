"""Stores for asyncio."""

import asyncio
import functools

import pytest

import stratakv
from conftest import ENGINES, small


def awaited(test):
    """Runs a test in an event loop."""

    @functools.wraps(test)
    def run(*arguments, **fixtures):
        asyncio.run(asyncio.wait_for(test(*arguments, **fixtures), 60))

    return run


@pytest.mark.parametrize("engine", ENGINES)
@awaited
async def test_the_same_as_a_store(path, engine):
    async with stratakv.AsyncStore(path, **small(engine)) as store:
        assert await store.get(b"k") is None and await store.get(b"k", 7) == 7
        version = await store.put(b"k", b"v", flags=3)
        assert await store.get(b"k") == b"v" and (await store.record(b"k")).version == version
        assert await store.put(b"k", b"w", expect="absent") is None
        assert await store.put(b"k", b"w", expect=version, ttl=100) > version
        assert await store.delete(b"k") and not await store.delete(b"k")
        users = await store.collection("users")
        await asyncio.gather(*(users.put(b"%03d" % number, b"v%d" % number) for number in range(500)))
        assert await users.get_many([b"007", b"x"]) == [b"v7", None]
        assert [key async for key in users] == [b"%03d" % number for number in range(500)]
        items = [item async for item in users.items(prefix=b"49", reverse=True)]
        assert items == [(b"%03d" % number, b"v%d" % number) for number in range(499, 489, -1)]
        assert await users.delete_prefix(b"0") == 100 and await users.delete_range(b"1", b"3") == 200
        assert len([value async for value in users.values()]) == 200
        assert await store.call("increment", b"n", 5) == 5
    assert store.sync.path == path
    with stratakv.open(path) as store:
        assert len(store.collection("users")) == 200


@awaited
async def test_batches_and_transactions(path, tmp_path):
    async with stratakv.AsyncStore(path, **small("in_place")) as store:
        async with store.batch() as batch:
            batch[b"a"] = b"1"
            batch.put(b"b", b"2")
            batch.delete(b"c")
            assert len(batch) == 3
        assert await store.get(b"b") == b"2"
        with pytest.raises(ZeroDivisionError):
            async with store.batch() as batch:
                batch[b"a"] = b"3"
                1 / 0
        with pytest.raises(stratakv.Conflict):
            async with store.batch() as batch:
                batch.put(b"a", b"3", expect="absent")
        tasks = await store.call("list", "tasks")
        async with store.batch() as batch:
            batch.append(tasks, b"wash")
        assert list(tasks) == [b"wash"] and await store.get(b"a") == b"1"

        def add(txn):
            txn[b"a"] = b"%d" % (int(txn[b"a"]) + 1)
            return txn[b"a"]

        assert sorted(await asyncio.gather(*(store.transact(add) for _ in range(3)))) == [b"2", b"3", b"4"]
        assert await store.backup(tmp_path / "backup") >= 3


@awaited
async def test_failures_are_raised(path):
    store = stratakv.AsyncStore(path, **small("in_place"))
    for use in (store.get(b"k"), store.put(b"k", b"v"), store.call("sync")):
        with pytest.raises(stratakv.Usage, match="is not open"):
            await use
    await store.close()
    async with store:
        for use, error in [
            (store.get(b""), stratakv.Usage),
            (store.put(b"k", "text"), TypeError),
            (store.put(b"k", b"v", ttl=-1), stratakv.Usage),
            (store.delete_range("a"), TypeError),
        ]:
            with pytest.raises(error):
                await use
        with pytest.raises(stratakv.Locked):
            async with stratakv.AsyncStore(path):
                pass
    with pytest.raises(stratakv.Closed):
        await store.get(b"k")
    with pytest.raises(stratakv.NotFound):
        await stratakv.AsyncStore(path / "x", create=False).open()


@awaited
async def test_an_operation_that_has_to_wait_may_fail(path):
    async with stratakv.AsyncStore(path, capacity_bytes="8MiB", **small("in_place")) as store:
        puts = (store.put(b"%d" % number, bytes(1 << 20)) for number in range(40))
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert any(isinstance(outcome, int) for outcome in outcomes)
        failed = [outcome for outcome in outcomes if not isinstance(outcome, int)]
        assert failed and all(isinstance(outcome, stratakv.Full) for outcome in failed)


@awaited
async def test_many_are_in_flight_and_some_are_given_up(path):
    async with stratakv.AsyncStore(path, **{**small("in_place"), "durability": "power_loss"}) as store:
        puts = [asyncio.ensure_future(store.put(b"%d" % number, bytes(5000))) for number in range(200)]
        await asyncio.sleep(0)
        given_up = puts[::3]
        for put in given_up:
            put.cancel()
        await asyncio.sleep(0)
        # What was given up is kept no longer, neither here nor there.
        assert len(store._port._port) == len(store._port._futures) < 200
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        versions = [outcome for outcome in outcomes if isinstance(outcome, int)]
        cancelled = [outcome for outcome in outcomes if isinstance(outcome, asyncio.CancelledError)]
        assert len(versions) + len(cancelled) == 200 and len(versions) >= 133
        assert not store._port._futures
        for number in range(200):
            assert number % 3 == 0 or await store.get(b"%d" % number) == bytes(5000)


def test_another_loop_is_refused(path):
    async def begin():
        return await stratakv.AsyncStore(path, **small("in_place")).open()

    store = asyncio.run(begin())
    with pytest.raises(stratakv.Usage, match="another event loop"):
        asyncio.run(store.get(b"k"))
    store.sync.close()
