"""A session of pymemcache with the server on the given port of 127.0.0.1."""

import sys

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError


def same(found, expected, what):
    if found != expected:
        shown = repr(found)[:200], repr(expected)[:200]
        raise SystemExit("%s: found %s, expected %s" % (what, *shown))


client = Client(("127.0.0.1", int(sys.argv[1])), timeout=60, connect_timeout=60, default_noreply=False)

same(client.get("nothing"), None, "get of nothing")
same(client.set("a", b"1"), True, "set")
same(client.get("a"), b"1", "get")
same(client.set("empty", b""), True, "set of nothing")
same(client.get("empty"), b"", "get of an empty value")

same(client.set_many({"m%d" % n: b"v%d" % n for n in range(100)}), [], "set_many")
many = client.get_many(["m%d" % n for n in range(120)])
same(many, {"m%d" % n: b"v%d" % n for n in range(100)}, "get_many")
same(client.delete_many(["m%d" % n for n in range(50)]), True, "delete_many")
same(len(client.get_many(["m%d" % n for n in range(100)])), 50, "get_many after delete_many")

same(client.add("a", b"2"), False, "add of what is there")
same(client.add("b", b"2"), True, "add of what is not")
same(client.replace("c", b"3"), False, "replace of what is not there")
same(client.replace("b", b"3"), True, "replace of what is")
same(client.get("b"), b"3", "get after replace")

value, token = client.gets("b")
same(value, b"3", "gets")
same(client.cas("b", b"4", token), True, "cas")
same(client.cas("b", b"5", token), False, "cas with an old token")
same(client.cas("none", b"5", token), None, "cas of nothing")
same(client.get("b"), b"4", "get after cas")

same(client.set("n", b"10"), True, "set of a number")
same(client.incr("n", 5), 15, "incr")
same(client.decr("n", 20), 0, "decr stops at 0")
same(client.incr("none", 1), None, "incr of nothing")
client.set("n", b"18446744073709551615")
same(client.incr("n", 1), 0, "incr wraps")
client.set("word", b"abc")
try:
    client.incr("word", 1)
    raise SystemExit("incr of a word was done")
except MemcacheClientError:
    pass

same(client.append("b", b"56"), True, "append")
same(client.prepend("b", b"23"), True, "prepend")
same(client.get("b"), b"23456", "get after append and prepend")
same(client.append("none", b"x"), False, "append to nothing")

same(client.touch("b", 1000), True, "touch")
same(client.touch("none", 1000), False, "touch of nothing")
same(client.raw_command("gat 2000 b", b"END\r\n"), b"VALUE b 0 5\r\n23456\r\n", "gat")
same(client.get("b"), b"23456", "get after touch")
same(client.set("gone", b"x", expire=-1), True, "set of what has expired")
same(client.get("gone"), None, "get of what has expired")

same(client.delete("b"), True, "delete")
same(client.delete("b"), False, "delete again")
same(client.get("b"), None, "get after delete")

megabyte = bytes(range(256)) * 4096
for n in range(8):
    same(client.set("large%d" % n, megabyte[n:] + megabyte[:n]), True, "set of 1 MB")
for n in range(8):
    same(client.get("large%d" % n), megabyte[n:] + megabyte[:n], "get of 1 MB")
same(len(client.get_many(["large%d" % n for n in range(8)])), 8, "get_many of 1 MB each")

for key, flags in (("f0", 0), ("f1", 4294967295)):
    client.set(key, b"x", flags=flags)
    same(client.get(key), b"x", "get of a value with flags")

try:
    client.get("k" * 251)
    raise SystemExit("a key of 251 bytes was taken")
except (MemcacheClientError, MemcacheServerError):
    pass

client.set("noreply", b"1", noreply=True)
client.append("noreply", b"2", noreply=True)
same(client.get("noreply"), b"12", "get after noreply")

same(b"uptime" in client.stats(), True, "stats")
same(len(client.version()) > 0, True, "version")
same(client.flush_all(), True, "flush_all")
same(client.get("a"), None, "get after flush_all")
client.quit()
