"""Two ranks at the ends of a line. Each is in a network namespace, and a tunnel through this process connects the two. The
process forwards packets after a delay and no faster than a rate. Needs root and iproute2; leaves nothing behind. (The
kernel's own netem is often missing.)
"""
import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time

from throttled_network import run, run_ranks

NETWORK = "10.213.8"
MTU = 60000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


def open_tunnel(space, name):
    """Makes the end of a tunnel in the namespace. The open file of the end belongs to this process."""
    if not os.path.exists("/dev/net/tun"):
        os.makedirs("/dev/net", exist_ok=True)
        os.mknod("/dev/net/tun", 0o600 | 0o020000, os.makedev(10, 200))
    libc = ctypes.CDLL(None, use_errno=True)
    ends = []

    def enter_and_open():  # runs on a thread of its own, because that thread remains in the namespace
        with open(f"/run/netns/{space}") as there:
            if libc.setns(there.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22s", name.encode(), IFF_TUN | IFF_NO_PI, b""))
        ends.append(end)

    thread = threading.Thread(target=enter_and_open)
    thread.start()
    thread.join()
    return ends[0]


class Line:
    """Two namespaces and the line between them, with `delay` seconds and `rate` bytes a second each way."""

    def __init__(self, delay, rate):
        self.delay, self.rate = delay, rate
        self.spaces = [f"reigen-{os.getpid()}-line{r}" for r in range(2)]
        self.ends = []
        self.over = False

    def __enter__(self):
        try:
            for rank, space in enumerate(self.spaces):
                run("ip", "netns", "add", space)
                self.ends.append(open_tunnel(space, "line0"))
                run("ip", "-n", space, "addr", "add", f"{NETWORK}.{rank + 1}/24", "dev", "line0")
                run("ip", "-n", space, "link", "set", "line0", "mtu", str(MTU), "txqueuelen", "10000", "up")
                run("ip", "-n", space, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        self.thread = threading.Thread(target=self.carry)
        self.thread.start()
        return self

    def carry(self):
        waiting, free_at, count = [], [0.0, 0.0], 0
        while not self.over:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(waiting)
                try:
                    os.write(self.ends[to], packet)
                except BlockingIOError:
                    pass  # drop the packet, like a switch whose queue is full
            limit = 0.05 if not waiting else max(0.0, waiting[0][0] - now)
            for end in select.select(self.ends, [], [], limit)[0]:
                rank = self.ends.index(end)
                for _ in range(64):
                    try:
                        packet = os.read(end, MTU + 100)
                    except BlockingIOError:
                        break
                    free_at[rank] = max(free_at[rank], time.monotonic()) + len(packet) / self.rate
                    count += 1
                    heapq.heappush(waiting, (free_at[rank] + self.delay, count, 1 - rank, packet))

    def run(self, command, port, timeout=300):
        return run_ranks(self.spaces, NETWORK, command, port, timeout)

    def __exit__(self, *_):
        self.over = True
        if hasattr(self, "thread"):
            self.thread.join()
        for end in self.ends:
            os.close(end)
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
