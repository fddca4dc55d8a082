"""StrataKV: a persistent key-value store for NVMe, cloud volumes, persistent memory and DRAM.

    with stratakv.open("data") as store:    # created if absent
        store[b"user:1"] = b"Ada"           # returns when durable
        for key, value in store.items(prefix=b"user:"):
            print(key, value)
"""

from __future__ import annotations

from collections.abc import MutableMapping as _MutableMapping
from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from ._stratakv import (
    Batch,
    Collection,
    Elements,
    List,
    Record,
    Scan,
    Snapshot,
    Store,
    Transaction,
    check,
    restore,
)
from .errors import (
    Busy,
    Closed,
    Conflict,
    Corruption,
    DeviceError,
    Error,
    Full,
    Locked,
    NotFound,
    Unknown,
    Unsupported,
    Usage,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._stratakv import _Options, _Path
    from .aio import AsyncBatch, AsyncCollection, AsyncStore

__version__ = _version("stratakv")

_MutableMapping.register(Collection)


def open(path: _Path, /, **options: Unpack[_Options]) -> Store:
    """Opens the store in directory `path`, and creates it if there is none.

    Options, by their names; a length is a number of bytes, or text such as "64MiB":

    create, create_new, read_only   True or False
    engine                          "slab" (default), "hash", "matrix" or "tier"
    placement                       "in_place" or "packed", of engine slab
    durability                      "power_loss" (default), "process_crash", "memory" (tier)
    memory_bytes                    for index and caches; 1 GiB
    capacity_bytes                  of its volumes; grows as needed if left out
    region_path, region_bytes       the region of hash and matrix
    pmem_levels_bytes, compression  of matrix; compression is "none" or "lz4"
    save_at_shutdown                of tier
    directory, device               a path or several, beside `path`
    shards, depth, cores, io        tuning; io is "auto", "uring" or "blocking"
    """
    return Store(path, **options)


_ASYNC = ("AsyncBatch", "AsyncCollection", "AsyncStore")


if not TYPE_CHECKING:

    def __getattr__(name):
        # asyncio is imported by those who use it.
        if name in _ASYNC:
            from . import aio

            return getattr(aio, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AsyncBatch",
    "AsyncCollection",
    "AsyncStore",
    "Batch",
    "Busy",
    "Closed",
    "Collection",
    "Conflict",
    "Corruption",
    "DeviceError",
    "Elements",
    "Error",
    "Full",
    "List",
    "Locked",
    "NotFound",
    "Record",
    "Scan",
    "Snapshot",
    "Store",
    "Transaction",
    "Unknown",
    "Unsupported",
    "Usage",
    "check",
    "open",
    "restore",
]
