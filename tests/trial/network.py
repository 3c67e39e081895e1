"""A network between ranks that can fail. Every rank has its own network namespace, and all packets pass through this process. The
process loses, delays, cuts and throttles packets, or drops all packets of single connections. Needs root and /dev/net/tun. Namespaces and interfaces have no names outside:
the kernel removes them when this process and the ranks have ended, however they end.
"""
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
SYN, RST, ACK = 2, 4, 16  # flags of TCP
QUEUE = 0.5  # a slow link holds the packets of this many seconds, and drops others
LIBC = ctypes.CDLL(None, use_errno=True)


def why_not():
    """The reason why such a network is impossible here, or None if it is possible."""
    if os.geteuid() != 0:
        return "needs root"
    return None if os.access("/dev/net/tun", os.R_OK | os.W_OK) else "needs /dev/net/tun"


class Link:
    """The delay (s), the share of lost packets, the speed and the splitting that the network applies to packets."""

    def __init__(self, delay=0.0, loss=0.0, mbit=0, split=0):
        self.delay, self.loss, self.mbit = delay, loss, mbit
        self.split = split  # segments of at most this many bytes are sent byte by byte


class Space:
    """A namespace with one interface; `device` reads and writes its packets."""

    def __init__(self, address, mtu):
        self.address, self.mtu = address, mtu
        self.failure = None
        # unshare moves the calling thread, so it runs in a thread of its own. The programs that this thread starts configure the namespace.
        thread = threading.Thread(target=self._make)
        thread.start()
        thread.join()
        if self.failure is not None:
            raise self.failure

    def _make(self):
        try:
            if LIBC.unshare(CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            self.handle = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self.device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(self.device, TUNSETIFF, struct.pack("16sH22s", b"tun0", IFF_TUN_NO_PI, b""))
            for words in (["link", "set", "lo", "up"], ["addr", "add", f"{self.address}/24", "dev", "tun0"],
                          ["link", "set", "tun0", "mtu", str(self.mtu), "txqueuelen", "1000", "up"]):
                subprocess.run(["ip", *words], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as failure:
            self.failure = failure

    def enter(self):
        """Moves this process into the namespace. For the child of a fork."""
        if LIBC.setns(self.handle, CLONE_NEWNET) != 0:
            os._exit(71)

    def close(self):
        os.close(self.device)
        os.close(self.handle)


class Network:
    """Spaces 0 to count - 1 for ranks, and one more for the store. `cut` holds pairs (from, to) whose packets are dropped. `connections`
    holds the connections between each two spaces, in the order in which they were made. Packets of `forgotten` connections are dropped too."""

    def __init__(self, count, mtu=9000):
        self.spaces = [Space(f"10.213.7.{i + 1}", mtu) for i in range(count + 1)]
        self.store = self.spaces[-1]
        self.cut = set()
        self.connections, self.forgotten = {}, set()
        self.link = Link()
        self.dice = random.Random(0)
        self.waiting, self.number, self.free_at = [], 0, {}
        self.over = False
        self.thread = threading.Thread(target=self._relay, daemon=True)
        self.thread.start()

    def reset(self, seed, link=None):
        self.cut, self.link, self.dice = set(), link or Link(), random.Random(seed)
        self.connections, self.forgotten = {}, set()

    def isolate(self, who, outward=True, inward=True):
        others = [i for i in range(len(self.spaces)) if i != who]
        self.cut = {(who, i) for i in others if outward} | {(i, who) for i in others if inward}

    def forget(self, who, other, keep):
        """Forgets the present connections between two spaces, except those whose number `keep` accepts."""
        known = self.connections.get(frozenset((who, other)), [])
        self.forgotten = {connection for i, connection in enumerate(list(known)) if not keep(i)}

    def close(self):
        self.over = True
        self.thread.join()
        for space in self.spaces:
            space.close()

    def _relay(self):
        devices = {space.device: i for i, space in enumerate(self.spaces)}
        poll = select.poll()
        for device in devices:
            poll.register(device, select.POLLIN)
        while not self.over:
            pause = 100
            if self.waiting:
                pause = max(0, min(pause, (self.waiting[0][0] - time.monotonic()) * 1000))
            for device, _ in poll.poll(pause):
                self._take(devices[device], device)
            now = time.monotonic()
            while self.waiting and self.waiting[0][0] <= now:
                self._give(*heapq.heappop(self.waiting)[2:])

    def _take(self, source, device):
        for _ in range(64):
            try:
                packet = os.read(device, 65536)
            except BlockingIOError:
                return
            target = packet[19] - 1
            if packet[0] >> 4 != 4 or not 0 <= target < len(self.spaces) or (source, target) in self.cut:
                continue
            if self._connection(source, target, packet) in self.forgotten:
                continue
            link = self.link
            if link.loss and self.dice.random() < link.loss:
                continue
            pieces = split(packet, link.split) if link.split else (packet,)
            if not link.delay and not link.mbit:
                for piece in pieces:
                    self._give(target, piece)
                continue
            for piece in pieces:
                self._send(source, target, piece, link)

    def _connection(self, source, target, packet):
        head = (packet[0] & 15) * 4
        if packet[9] != 6:
            return None
        ports = struct.unpack("!HH", packet[head:head + 4])
        connection = frozenset(((source, ports[0]), (target, ports[1])))
        if packet[head + 13] & (SYN | ACK) == SYN:
            known = self.connections.setdefault(frozenset((source, target)), [])
            if connection not in known:
                known.append(connection)
        return connection

    def _send(self, source, target, packet, link):
        now = time.monotonic()
        gone = max(now, self.free_at.get(source, 0)) + (len(packet) * 8 / (link.mbit * 1e6) if link.mbit else 0)
        if gone - now > QUEUE:
            return
        self.free_at[source] = gone
        self.number += 1
        heapq.heappush(self.waiting, (gone + link.delay, self.number, target, packet))

    def _give(self, target, packet):
        try:
            os.write(self.spaces[target].device, packet)
        except OSError:
            pass  # no room: the packet is lost


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def split(packet, limit):
    """Splits a short TCP segment into segments of one byte."""
    head = (packet[0] & 15) * 4
    if packet[9] != 6:
        return (packet,)
    begin = head + (packet[head + 12] >> 4) * 4
    payload = packet[begin:]
    flags = packet[head + 13]
    if not 1 < len(payload) <= limit or flags & (SYN | RST):
        return (packet,)
    pieces = []
    sequence = struct.unpack("!I", packet[head + 4:head + 8])[0]
    for i, byte in enumerate(payload):
        last = i == len(payload) - 1
        ip = bytearray(packet[:head])
        tcp = bytearray(packet[head:begin])
        ip[2:4] = struct.pack("!H", begin + 1)
        ip[10:12] = b"\0\0"
        ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
        tcp[4:8] = struct.pack("!I", (sequence + i) & 0xFFFFFFFF)
        if not last:
            tcp[13] = flags & ~0x09  # FIN, PSH
        tcp[16:18] = b"\0\0"
        segment = bytes(tcp) + bytes([byte])
        pseudo = bytes(ip[12:20]) + struct.pack("!BBH", 0, 6, len(segment))
        tcp[16:18] = struct.pack("!H", checksum(pseudo + segment))
        pieces.append(bytes(ip) + bytes(tcp) + bytes([byte]))
    return pieces
