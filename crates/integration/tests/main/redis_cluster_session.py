"""A session of redis-py's RedisCluster with three servers at the given ports of 127.0.0.1.

Each line of its input begins a part; it says "done" behind each. The second server ends before the
part "away", and is there again before the part "back".
"""

import sys

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ConnectionError, RedisClusterException, RedisError
from redis.retry import Retry

PORTS = [int(port) for port in sys.argv[1:4]]
KEYS = ["key:%d" % number for number in range(400)]


def same(found, expected, what):
    if found != expected:
        shown = repr(found)[:200], repr(expected)[:200]
        raise SystemExit("%s: found %s, expected %s" % (what, *shown))


def connect():
    nodes = [ClusterNode("127.0.0.1", port) for port in PORTS]
    return RedisCluster(startup_nodes=nodes, retry=Retry(NoBackoff(), 1), socket_timeout=60)


def port_of(client, key):
    return client.get_node_from_key(key).port


def by_port(client):
    """Keys by the server that has them: each has a fair part."""
    found = {port: [key for key in KEYS if port_of(client, key) == port] for port in PORTS}
    same([len(keys) > 80 for keys in found.values()], [True] * 3, "keys of each server")
    return found


def fill(client):
    by_port(client)
    for key in KEYS:
        same(client.set(key, "first " + key), True, "set")
    same(client.dbsize(target_nodes=RedisCluster.PRIMARIES), len(KEYS), "dbsize of all servers")
    same(sorted(key.decode() for key in client.scan_iter("key:*")), sorted(KEYS), "scan of all servers")
    same(client.mget_nonatomic(*KEYS[:50]), [b"first " + key.encode() for key in KEYS[:50]], "mget")
    same(client.mset({"{tag}1": "a", "{tag}2": "b"}), True, "mset of one slot")
    same(client.mget("{tag}1", "{tag}2"), [b"a", b"b"], "mget of one slot")
    with client.pipeline() as pipe:
        for key in KEYS[:20]:
            pipe.append(key, "!")
        same(pipe.execute(), [len("first ") + len(key) + 1 for key in KEYS[:20]], "pipeline to all servers")
    with client.pipeline(transaction=True) as pipe:
        pipe.rpush("{tag}list", "x", "y")
        pipe.llen("{tag}list")
        same(pipe.execute(), [2, 2], "transaction of one slot")
    try:
        client.rename("key:1", "key:2")
    except RedisClusterException as error:
        same("slot" in str(error), True, str(error))
    else:
        raise SystemExit("a rename from one server to another one")
    same(client.delete("{tag}1", "{tag}2", "{tag}list"), 3, "delete")
    same(client.cluster_info()["cluster_state"], "ok", "state")
    same(len(client.cluster_nodes()), 3, "nodes")


def value(key):
    return b"first " + key.encode() + (b"!" if key in KEYS[:20] else b"")


def away(client):
    """Keys of the server that is away are errors, and those of the others are there."""
    for port, keys in by_port(client).items():
        for key in keys:
            try:
                found = client.get(key)
            except (ConnectionError, RedisClusterException) as error:
                same(port, PORTS[1], "%s, of %s, is an error: %s" % (key, port, error))
            else:
                same(port == PORTS[1], False, "%s has an answer without its server" % key)
                same(found, value(key), key)
                same(client.set(key, "second " + key), True, "set beside")


def back(client):
    for fresh in (client, connect()):
        for port, keys in by_port(fresh).items():
            for key in keys:
                kept = value(key) if port == PORTS[1] else b"second " + key.encode()
                same(fresh.get(key), kept, key)


def main():
    client = connect()
    parts = {"fill": fill, "away": away, "back": back}
    for line in sys.stdin:
        try:
            parts[line.strip()](client)
        except RedisError as error:
            raise SystemExit("%s: %r" % (line.strip(), error)) from error
        print("done", flush=True)


main()
