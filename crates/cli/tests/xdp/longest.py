"""The longest IPv4 packet to an address that is sent at an interface until stdin ends.

Takes the interface and the address. Says `watching` when it does, and the length at the end.
"""

import select
import socket
import sys

interface, address = sys.argv[1:3]
ETH_P_ALL = 3
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
packets.bind((interface, 0))
print("watching", flush=True)
longest, wanted = 0, socket.inet_aton(address)
while True:
    ready = select.select([packets, sys.stdin], [], [], 10)[0]
    if packets in ready:
        frame = packets.recv(65536)
        if frame[12:14] == b"\x08\x00" and frame[30:34] == wanted:
            longest = max(longest, len(frame) - 14)
    elif sys.stdin in ready or not ready:
        break
print(longest)
