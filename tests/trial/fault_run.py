"""One run of a row of the fault matrix: its ranks, their reports, and checks of these reports. For scripts/check/faults."""
import ctypes
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import processes  # noqa: E402

LIMIT = 60  # seconds after which a rank counts as hanging
JOIN = 3  # seconds for which ranks wait for each other to join, if one of them dies before it joins


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Failure(Exception):
    pass


class Run:
    """Ranks that are processes. With `network`, each has its own network namespace."""

    def __init__(self, path, options, ranks, row, seed, join=0, preexec=None, wrap=(), network=None, **per_rank):
        self.path, self.options, self.row, self.seed = path, options, row, seed
        self.join, self.preexec, self.wrap, self.network = join, preexec, list(wrap), network
        self.processes = []
        self.store = processes.Store(path, network.store if network else None)
        try:
            for rank in range(ranks):
                self.start(rank, ranks, **per_rank.get(f"rank_{rank}", {}))
        except BaseException:
            self.close()
            raise

    def start(self, rank, ranks, row=None, job="reigen-trial"):
        words = [*self.wrap, str(self.path), "fault", "--backend", self.options.backend, "--rank", str(rank), "--ranks", str(ranks),
                 "--host", self.store.host, "--port", str(self.store.port), "--job", job, "--row", row or self.row, "--seed", str(self.seed), "--seconds", str(self.join)]

        def prepare():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # no rank remains when this script is killed
            if self.network:
                self.network.spaces[rank].enter()
            if self.preexec:
                self.preexec()

        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=prepare)
        process.rank, process.lines = rank, []
        self.processes.append(process)
        return process

    def wait_ready(self):
        for process in self.processes:
            process.lines.append(process.stdout.readline())

    def wait(self, who, bound, since, limit=LIMIT):
        """Waits until all of `who` have ended. Returns the seconds from `since` until then."""
        for process in who:
            try:
                process.wait(timeout=max(0.01, since + limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failure(f"rank {process.rank} hangs") from None
        taken = time.monotonic() - since
        if taken > bound * self.options.slack:
            raise Failure(f"it took {taken:.2f} s, {bound} s are allowed")
        return taken

    def end(self, process):
        """The report of a rank: its last line of JSON, or its exit code and all its lines."""
        process.lines += process.stdout.read().splitlines()
        for line in reversed(process.lines):
            if line.startswith("{"):
                return json.loads(line)
        return {"type": "nothing", "code": process.returncode, "text": "\n".join(process.lines)}

    def report(self):
        lines = []
        for process in self.processes:
            if process.poll() is None:
                lines.append(f"rank {process.rank} (pid {process.pid}): still runs")
            else:
                lines.append(f"rank {process.rank} (pid {process.pid}): ended with {process.returncode}: {self.end(process)}")
        return "\n".join(lines)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
        self.store.__exit__()


def expect(condition, what):
    if not condition:
        raise Failure(what)


def check_survivors(run, survivors, victim, types=("PeerLost",)):
    """Every survivor must have a typed error that names the victim or another rank of the run. At least one must name the victim."""
    named = 0
    pids = {f"pid {process.pid}" for process in run.processes}
    for process in survivors:
        end = run.end(process)
        expect(end["type"] in types and process.returncode == end["code"] == 79, f"rank {process.rank} ended with {end['type']}")
        text = end["text"]
        names = f"pid {victim.pid}" in text or (("missing" in text or "calls from" in text) and str(victim.rank) in text)
        expect(names or any(pid in text for pid in pids), f"rank {process.rank} names nobody")
        named += names
    expect(named > 0, f"nobody names rank {victim.rank}")
