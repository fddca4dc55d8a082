"""A leaderboard, sessions and a queue by redis-py. Arguments: the port."""
import sys
import threading

import redis

client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
board = "board"
players = ["player%d" % number for number in range(200)]
with client.pipeline() as pipeline:
    for number, player in enumerate(players):
        pipeline.zincrby(board, number % 50, player)
        pipeline.hset("info:" + player, mapping={"name": player, "level": number})
    pipeline.execute()
assert client.zcard(board) == 200
top = client.zrevrange(board, 0, 9, withscores=True)
assert len(top) == 10 and top[0][1] == 49 and client.zrevrank(board, top[0][0]) == 0
around = client.zrevrank(board, "player7")
assert len(client.zrevrange(board, around - 2, around + 2)) == 5
client.zadd(board, {"player7": 1000})
assert client.zrevrank(board, "player7") == 0 and client.zcount(board, 49, "+inf") == 5
assert client.hgetall("info:player7") == {"name": "player7", "level": "7"}
taken, lock = [], threading.Lock()


def worker():
    mine = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
    while True:
        _, job = mine.blpop("jobs", timeout=20)
        if job == "end":
            return
        with lock:
            taken.append(job)


threads = [threading.Thread(target=worker) for _ in range(6)]
[thread.start() for thread in threads]
for number in range(300):
    client.rpush("jobs", number)
client.rpush("jobs", *["end"] * 6)
[thread.join(30) for thread in threads]
assert sorted(taken, key=int) == [str(number) for number in range(300)], len(taken)
heard = []
listener = client.pubsub()
listener.subscribe("news")
listener.psubscribe("n*")
[listener.get_message(timeout=5) for _ in range(2)]
assert client.publish("news", "hello") == 2
assert {listener.get_message(timeout=5)["type"] for _ in range(2)} == {"message", "pmessage"}
listener.close()
print("ok")
