"""One end of an exchange over 127.0.0.1 at a limited rate; it needs nothing but Python.

As a program it is the far end: python loopback_peer.py PORT ROUNDS BITS_PER_SECOND LATENCY < MESSAGE
"""

import socket
import sys
import time

PATIENCE = 5.0  # seconds that an end waits for the other before it gives up
PACKET = 1500  # bytes, as on Ethernet


class TokenBucket:
    """Lets bytes through at a given rate: whoever has no tokens left waits for new ones.

    It is empty at first. Tokens are kept, so who sleeps too long, on a busy machine, may catch up.
    """

    def __init__(self, bytes_per_second):
        self._rate, self._free_at = bytes_per_second, time.perf_counter()

    def take(self, count):
        self._free_at += count / self._rate
        time.sleep(max(0.0, self._free_at - time.perf_counter()))


def exchange(link, message, rounds, bits_per_second, latency):
    """Both ends send at once and wait for each other, round after round: the seconds, and what came last."""
    other = b""
    link.settimeout(PATIENCE)
    link.sendall(b"!")  # both begin when both are there
    receive(link, 1)
    began = time.perf_counter()
    for _ in range(rounds):
        bucket = TokenBucket(bits_per_second / 8)  # an empty one: nobody saves tokens while it waits
        # A message fits into the sockets' buffers: no end waits until the other reads.
        for start in range(0, len(message), PACKET):
            packet = message[start : start + PACKET]
            bucket.take(len(packet))
            link.sendall(packet)
        other = receive(link, len(message))
        time.sleep(latency)  # which the loopback does not have
    return time.perf_counter() - began, other


def receive(link, count):
    got = bytearray()
    while len(got) < count:
        part = link.recv(count - len(got))
        if not part:
            raise ConnectionError("the other end has gone")
        got += part
    return bytes(got)


if __name__ == "__main__":
    port, rounds = map(int, sys.argv[1:3])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as far:
        exchange(far, sys.stdin.buffer.read(), rounds, *map(float, sys.argv[3:]))
