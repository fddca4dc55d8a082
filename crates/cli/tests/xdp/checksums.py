"""Has the kernel fill in checksums for frames of an interface: on veth it leaves that to the wire.

Takes the interface's name. As `ethtool -K NAME tx off`.
"""

import array
import fcntl
import socket
import struct
import sys

SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17

value = array.array("B", struct.pack("II", ETHTOOL_STXCSUM, 0))
with socket.socket() as any_socket:
    request = struct.pack("16sP8x", sys.argv[1].encode(), value.buffer_info()[0])
    fcntl.ioctl(any_socket, SIOCETHTOOL, request)
