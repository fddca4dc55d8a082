"""A session of redis-py with the server on the given port of 127.0.0.1, in each version of RESP."""

import sys
import threading

import redis


def same(found, expected, what):
    if found != expected:
        shown = repr(found)[:200], repr(expected)[:200]
        raise SystemExit("%s: found %s, expected %s" % (what, *shown))


def refused(call, word, what):
    try:
        found = call()
    except redis.ResponseError as error:
        same(word in str(error), True, "%s, %s" % (what, error))
    else:
        raise SystemExit("%s: found %r, expected an error" % (what, found))


def session(version):
    client = redis.Redis(port=int(sys.argv[1]), protocol=version, socket_timeout=60, client_name="session")
    client.flushall()
    same(client.ping(), True, "ping")
    same(client.echo(b"\x00\r\n\xff"), b"\x00\r\n\xff", "echo")
    same(client.get("nothing"), None, "get of nothing")
    same(client.set("a", "1"), True, "set")
    same(client.get("a"), b"1", "get")
    same(client.set("a", "2", nx=True), None, "set with nx")
    same(client.set("a", "2", xx=True, ex=1000, get=True), b"1", "set with get")
    same(client.ttl("a"), 1000, "ttl")
    same(client.set("a", "3", keepttl=True), True, "set with keepttl")
    same(client.ttl("a"), 1000, "ttl after keepttl")
    same(client.getex("a", persist=True), b"3", "getex")
    same(client.ttl("a"), -1, "ttl after getex")
    same(client.incrby("a", 39), 42, "incrby")
    same(client.incrbyfloat("f", 0.1), 0.1, "incrbyfloat")
    same(client.append("text", "abc"), 3, "append")
    same(client.setrange("text", 5, "x"), 6, "setrange")
    same(client.getrange("text", 0, -1), b"abc\x00\x00x", "getrange")
    same(client.strlen("text"), 6, "strlen")
    same(client.mset({"m%d" % n: n for n in range(100)}), True, "mset")
    same(client.mget(["m%d" % n for n in range(0, 110, 10)]), [b"%d" % n for n in range(0, 100, 10)] + [None], "mget")
    same(client.msetnx({"m0": 1, "new": 1}), False, "msetnx") if "tier" not in sys.argv else None
    same(sorted(client.scan_iter("m*", count=7)), sorted(b"m%d" % n for n in range(100)), "scan_iter")
    same(len(client.keys("m?")), 10, "keys")
    same(client.delete(*["m%d" % n for n in range(50)]), 50, "delete")
    same(client.exists("m1", "m50", "m51"), 2, "exists")
    same(client.type("a"), b"string", "type")
    same(client.getdel("text"), b"abc\x00\x00x", "getdel")
    same(client.setbit("bits", 9, 1), 0, "setbit")
    same((client.getbit("bits", 9), client.bitcount("bits"), client.bitpos("bits", 1)), (1, 1, 9), "bits")
    same(client.expire("a", 100), True, "expire")
    same(client.pexpireat("a", 4000000000123), True, "pexpireat")
    same(client.pexpiretime("a"), 4000000000123, "pexpiretime")
    same(client.client_getname() in ("session", b"session"), True, "client_getname")
    same("redis_version" in client.info(), True, "info")
    same(client.config_get("databases")["databases"], "1", "config_get") if version == 2 else client.config_get("*")
    same("get" in client.command(), True, "command")
    same(client.dbsize() > 0, True, "dbsize")
    refused(lambda: client.eval("return 1", 0), "not supported yet", "eval")
    same(client.blpop("list", 0.01), None, "blpop that gets nothing")
    same(client.rpush("list", "a", "b", "c"), 3, "rpush")
    same(client.lrange("list", 0, -1), [b"a", b"b", b"c"], "lrange")
    same((client.lpop("list"), client.rpop("list", 2), client.lpop("list")), (b"a", [b"c", b"b"], None), "lpop")
    client.rpush("list", "a")
    same(tuple(client.blpop(["none", "list"], 1)), (b"list", b"a"), "blpop")
    same(client.sadd("set", "a", "b"), 2, "sadd")
    same((set(client.smembers("set")), bool(client.sismember("set", "a"))), ({b"a", b"b"}, True), "smembers")
    same(sorted(client.sscan_iter("set")), [b"a", b"b"], "sscan_iter")
    same(client.zadd("scores", {"a": 1, "b": 2.5, "c": float("inf")}), 3, "zadd")
    same((client.zscore("scores", "b"), client.zscore("scores", "none")), (2.5, None), "zscore")
    same([tuple(pair) for pair in client.zrange("scores", 0, 1, withscores=True)], [(b"a", 1.0), (b"b", 2.5)], "zrange")
    same(client.zrangebyscore("scores", "(1", "+inf"), [b"b", b"c"], "zrangebyscore")
    same(client.zincrby("scores", 0.25, "b"), 2.75, "zincrby")
    same(client.zrevrank("scores", "a"), 2, "zrevrank")
    same(dict(client.zscan_iter("scores")), {b"a": 1.0, b"b": 2.75, b"c": float("inf")}, "zscan_iter")
    same(client.delete("set", "scores"), 2, "delete of structures")
    refused(lambda: client.incr("f"), "not an integer", "incr of a fraction")

    pipeline = client.pipeline(transaction=False)
    for n in range(1000):
        pipeline.incr("piped")
    same(pipeline.execute(), list(range(1, 1001)), "pipeline")

    long = bytes(range(256)) * 3000
    same(client.set("long", long), True, "set of a long value")
    same(client.get("long"), long, "get of a long value")
    refused(lambda: client.set("long", b"x" * (1 << 21)), "--item-bytes-max", "set of too long a value")
    same(client.get("long"), long, "get after a refused set")

    threads = [threading.Thread(target=lambda: [client.incr("threads") for _ in range(50)]) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    same(client.get("threads"), b"400", "increments of eight threads")

    same(client.hset("hash", mapping={"a": 1, "b": "two"}), 2, "hset")
    same(client.hgetall("hash"), {b"a": b"1", b"b": b"two"}, "hgetall")
    same((client.hget("hash", "none"), client.hincrby("hash", "a", 4)), (None, 5), "hincrby")
    same(dict(client.hscan_iter("hash")), {b"a": b"5", b"b": b"two"}, "hscan_iter")
    same(client.hdel("hash", "a", "b", "c"), 2, "hdel")
    transaction = client.pipeline()
    transaction.set("t", 1)
    transaction.incr("t")
    same(transaction.execute(), [True, 2], "transaction")
    same(client.transaction(lambda pipe: (pipe.get("t"), pipe.multi(), pipe.incr("t")), "t"), [3], "watched")
    watching = client.pipeline()
    watching.watch("t")
    client.set("t", 9)
    watching.multi()
    watching.incr("t")
    try:
        watching.execute()
        same("done", "an error", "a watched key that was changed")
    except redis.WatchError:
        pass
    same(client.get("t"), b"9", "t")
    client.close()


session(2)
session(3)
