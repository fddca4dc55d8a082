"""Asks by ARP who has an address, without and with a VLAN tag.

Takes the client's interface, the other end's namespace and interface, and both addresses. Says three
words: whether there was an answer without a tag, one with a tag, and whether the tagged question
came to the kernel at the other end.
"""

import ctypes
import os
import socket
import struct
import sys

interface, other_namespace, other, ours, theirs = sys.argv[1:6]
ETH_P_ALL = 3


def opened(name):
    packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packet.bind((name, 0))
    packet.settimeout(0.3)
    return packet


def in_namespace(name, body):
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open("/run/netns/" + name, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(there, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    made = body()
    libc.setns(here, 0)
    return made


client = opened(interface)
server = in_namespace(other_namespace, lambda: opened(other))
hardware = client.getsockname()[4]


def question(tag):
    arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + hardware + socket.inet_aton(ours)
    arp += bytes(6) + socket.inet_aton(theirs)
    return b"\xff" * 6 + hardware + tag + b"\x08\x06" + arp


def seen(packet, wanted):
    try:
        while True:
            frame = packet.recv(65536)
            if wanted(frame):
                return True
    except TimeoutError:
        return False


def is_answer(frame):
    """An ARP answer from the other address, with a tag or without."""
    arp = frame[frame.find(b"\x08\x06") + 2 :]
    return arp[6:8] == b"\x00\x02" and arp[14:18] == socket.inet_aton(theirs)


def is_question(frame):
    return frame[12:14] in (b"\x81\x00", b"\x08\x06") and socket.inet_aton(theirs) in frame[-32:]


words = []
for tag in (b"", b"\x81\x00\x00\x05"):
    client.send(question(tag))
    words.append(seen(client, is_answer))
# Without a tag the question never came to the kernel there.
words.append(seen(server, is_question))
print(*words)
