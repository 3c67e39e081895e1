"""Ranks on slow links: each in a network namespace with one cable to a switch, on which it may send `mbit` megabits a second
(tc, token bucket). Needs root and iproute2; leaves nothing behind.
"""
import os
import subprocess

NETWORK = "10.213.7"


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def run_ranks(spaces, network, command, port, timeout):
    """Runs command(rank) in every namespace, as ranks of one job whose store is at rank 0. Returns the output of each."""
    processes = []
    for rank, space in enumerate(spaces):
        variables = {"RANK": rank, "WORLD_SIZE": len(spaces), "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank,
                     "MASTER_ADDR": f"{network}.1", "MASTER_PORT": port}
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        words = ["ip", "netns", "exec", space, *(str(word) for word in command(rank))]
        processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise RuntimeError("\n".join(outputs))
    return outputs


class Switch:
    """Namespaces of ranks, each with a throttled cable to a bridge, which has a namespace too."""

    def __init__(self, ranks, mbit):
        self.hub = f"reigen-{os.getpid()}-hub"
        self.spaces = [f"reigen-{os.getpid()}-{r}" for r in range(ranks)]
        self.mbit = mbit

    def __enter__(self):
        try:
            run("ip", "netns", "add", self.hub)
            run("ip", "-n", self.hub, "link", "add", "switch", "type", "bridge")
            run("ip", "-n", self.hub, "link", "set", "switch", "up")
            for rank, space in enumerate(self.spaces):
                self.plug(rank, space)
        except BaseException:
            self.__exit__()
            raise
        return self

    def plug(self, rank, space):
        run("ip", "netns", "add", space)
        run("ip", "-n", self.hub, "link", "add", f"port{rank}", "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "-n", self.hub, "link", "set", f"port{rank}", "master", "switch", "up")
        run("ip", "-n", space, "addr", "add", f"{NETWORK}.{rank + 1}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        # The queue is short, because acknowledgements wait in it after the data that the rank forwards. The bucket takes the kernel's
        # largest packets (64 KiB) whole. A network card would cut them into small ones; here that would use up the ranks' cores.
        run("tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{self.mbit}mbit", "burst", "256kb",
            "latency", "20ms")

    def run(self, command, port, timeout=300):
        return run_ranks(self.spaces, NETWORK, command, port, timeout)

    def __exit__(self, *_):
        for space in [*self.spaces, self.hub]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
