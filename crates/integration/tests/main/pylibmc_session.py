"""A session of pylibmc with the server on the given port of 127.0.0.1, by the protocol named behind it."""

import sys

import pylibmc


def same(found, expected, what):
    if found != expected:
        shown = repr(found)[:200], repr(expected)[:200]
        raise SystemExit("%s: found %s, expected %s" % (what, *shown))


port, protocol = sys.argv[1], sys.argv[2]
behaviors = {"cas": True, "tcp_nodelay": True, "connect_timeout": 60000}
client = pylibmc.Client(["127.0.0.1:" + port], binary=protocol == "binary", behaviors=behaviors)

same(client.get("nothing"), None, "get of nothing")
same(client.set("a", "1"), True, "set")
same(client.get("a"), "1", "get")
same(client.set("number", 41), True, "set of a number")
same(client.get("number"), 41, "a number comes back as one, by its flags")
same(client.set("empty", b""), True, "set of nothing")
same(client.get("empty"), b"", "get of an empty value")
long = b"x" * 1000000
same(client.set("long", long), True, "set of a long value")
same(client.get("long") == long, True, "get of a long value")

same(client.set_multi({"m%d" % n: n for n in range(100)}), [], "set_multi")
many = client.get_multi(["m%d" % n for n in range(120)])
same(many, {"m%d" % n: n for n in range(100)}, "get_multi")
same(client.delete_multi(["m%d" % n for n in range(50)]), True, "delete_multi")
same(len(client.get_multi(["m%d" % n for n in range(100)])), 50, "get_multi after delete_multi")

same(client.add("a", "2"), False, "add of what is there")
same(client.add("b", "2"), True, "add of what is not")
try:
    replaced = client.replace("c", "3")
except pylibmc.NotFound:
    # By the binary protocol; so it is with memcached.
    replaced = False
same(replaced, False, "replace of what is not there")
same(client.replace("b", "3"), True, "replace of what is")

value, token = client.gets("b")
same(value, "3", "gets")
same(client.cas("b", "4", token), True, "cas")
same(client.cas("b", "5", token), False, "cas with an old token")
same(client.get("b"), "4", "get after cas")

same(client.incr("number", 1), 42, "incr")
same(client.decr("number", 100), 0, "decr stops at 0")
same(client.append("b", "5"), True, "append")
same(client.prepend("b", "3"), True, "prepend")
same(client.get("b"), "345", "get after append and prepend")
same(client.touch("b", 1000), True, "touch")
same(client.delete("b"), True, "delete")
same(client.delete("b"), False, "delete of what is not there")
statistics = client.get_stats()
same(statistics[0][1]["threads" if isinstance(list(statistics[0][1])[0], str) else b"threads"] is not None, True, "stats")
same(client.flush_all(), True, "flush_all")
same(client.get("a"), None, "get after flush_all")
