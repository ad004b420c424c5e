"""rsync's remote shell: copies between its standard streams and the socket inherited as argument 1.

A program of its own, started once a transfer without the rest of the package. The host and the command that
rsync appends are ignored.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

_PIECE = 256 * 1024


def main() -> int:
    """Copy both ways at once until the far side has ended; pass our end-of-file on as a half-close."""
    link = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_up, args=(link,), daemon=True).start()
    view = memoryview(bytearray(_PIECE))
    while count := link.recv_into(view):
        left = view[:count]
        while left:
            left = left[os.write(1, left) :]
    return 0


def _up(link: socket.socket) -> None:
    try:
        while data := os.read(0, _PIECE):
            link.sendall(data)
        # Others hold this socket too (rsync itself inherits it): only a shutdown is seen at the far end.
        link.shutdown(socket.SHUT_WR)
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
