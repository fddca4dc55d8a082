"""Exceptions of StrataKV, by the kind of failure. Their texts say what, why and what to do next."""


class Error(Exception):
    """What the others are. Unless it is `Unknown`, a call that raised it has changed nothing."""


class Usage(Error, ValueError):
    """A bad argument. The same call will fail again."""


class NotFound(Error):
    """There is no such store. (A key that does not exist raises `KeyError`, or nothing.)"""


class Corruption(Error):
    """Damaged data, with its place."""


class Locked(Error):
    """The store is open in another process, or already in this one."""


class Full(Error):
    """No space, or no memory for the index."""


class Unsupported(Error):
    """Not offered by this engine, medium or version of the format."""


class DeviceError(Error, OSError):
    """The device or the system failed."""


class Closed(Error):
    """The store is closed, or was opened before this process was forked."""


class Unknown(Error):
    """The outcome is not known: what was asked is done, or not."""


class Busy(Error):
    """Too much waits. Try again."""


class Conflict(Busy):
    """A transaction or batch met a change by somebody else. Nothing was done; begin again."""
