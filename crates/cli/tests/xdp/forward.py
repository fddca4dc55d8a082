"""Forwards frames between two interfaces, and loses, delays and reorders some of them.

Takes both names, a seed, thousandths of frames that are lost, and the longest delay in
milliseconds. Says `forwarding` when it does.
"""

import heapq
import random
import select
import socket
import sys
import time

names, seed, lost, delay = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
chance = random.Random(seed)
ETH_P_ALL = 3


def opened(name):
    interface = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    interface.bind((name, 0))
    return interface


sides = [opened(name) for name in names]
others = {sides[0]: sides[1], sides[1]: sides[0]}
waiting, count = [], 0
print("forwarding", flush=True)
while True:
    now = time.monotonic()
    while waiting and waiting[0][0] <= now:
        _, _, to, frame = heapq.heappop(waiting)
        to.send(frame)
    left = max(0, waiting[0][0] - now) if waiting else None
    for side in select.select(sides, [], [], left)[0]:
        frame, (_, _, kind, _, _) = side.recvfrom(65536)
        # What was sent here comes back as well.
        if kind == socket.PACKET_OUTGOING or chance.randrange(1000) < lost:
            continue
        count += 1
        heapq.heappush(waiting, (time.monotonic() + chance.random() * delay / 1000, count, others[side], frame))
