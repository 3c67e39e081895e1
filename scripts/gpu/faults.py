"""The part `faults`: what the other ranks are told when a rank fails, and what is left afterwards."""
import re
import signal
import threading
import time
from dataclasses import dataclass

from gpu import jobs, machine, table
from gpu.build import FLOORS
from gpu.check import Task
from gpu.jobs import Trouble

RANKS = (2, 3)
MORE_TIME = 20  # seconds that a job gets to end, beyond its bar, before it is killed


@dataclass(frozen=True)
class Fault:
    what: str  # with a place for the number of ranks
    named: float  # the culprit must be named within so many seconds
    ended: float  # and all ranks must have ended
    words: tuple  # of check_group
    number: int = 0  # a signal that the culprit gets; 0: it does something wrong by itself
    variables: tuple = ()


KILL = Fault("KILL to rank 1 of {}", 1, 3, ("--for-ever",), signal.SIGKILL)
STOP = Fault("STOP to rank 1 of {}", 10, 14, ("--for-ever",), signal.SIGSTOP)
EXCEPTION = Fault("exception in rank 1 of {}", 2, 5, ("--fault", "exception"))
MISMATCH = Fault("mismatch: another number of elements in rank 1 of {}", 1, 5, ("--fault", "mismatch"))
KERNEL = Fault("a kernel of rank 1 of {} that fails", 2, 5, ("--fault", "kernel"))
# A call that waits for a rank that is alive has a deadline, which is ten minutes unless somebody sets it.
ENDLESS = Fault("a kernel of rank 1 of {} that never ends, REIGEN_TIMEOUT=20", 30, 35, ("--fault", "endless"),
                variables=(("REIGEN_TIMEOUT", 20),))


class Watched:
    """A job of check_group in which rank 1 fails. All lines that it prints are kept with their times."""

    def __init__(self, check, fault, ranks):
        self.check, self.fault, self.ranks, self.lines = check, fault, ranks, []
        self.what = fault.what.format(ranks)
        self.code, self.begin, self.end, self.alive = None, None, None, []
        self.trouble = None

    def run(self):
        try:
            self.start()
        except Trouble as trouble:
            self.trouble = str(trouble)
        finally:
            if self.trouble is None and self.begin is None:
                self.trouble = f"rank 1 did nothing wrong: {jobs.last_lines(self.text())}"

    def start(self):
        group = self.check.floors / "tests" / "check_group"
        reigen = self.check.floors / "bin" / "reigen"
        # The shell joins both outputs of the job.
        command = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", reigen, "run", "--no-mps", "--prefix", "none", "-n", self.ranks, group,
                   *self.fault.words]
        name = f"fault_{self.what}"
        job = self.check.start(name, command, dict(self.fault.variables), talks=True)
        try:
            self.wait_for_the_fault(job)
            self.wait_for_the_end(job)
        finally:
            job.end()

    def hear(self, job, until):
        """Keeps the next line. Returns it, or None when the job has closed its output."""
        heard = job.lines.get(timeout=max(0.01, until - time.monotonic()))
        if heard is not None:
            self.lines.append(heard)
        return heard

    def wait_for_the_fault(self, job):
        until = time.monotonic() + self.check.limit(60)
        while True:
            try:
                heard = self.hear(job, until)
            except Exception as error:
                raise Trouble(f"rank 1 did not start: {jobs.last_lines(self.text())}") from error
            if heard is None:
                raise Trouble(f"ended too early: {jobs.last_lines(self.text(), 3)}")
            if "rank 1 does it now" in heard[1]:
                self.begin = heard[0]
                return
            process = re.search(r"rank 1 is process (\d+)", heard[1])
            if process and self.fault.number:
                time.sleep(1)
                self.begin = time.monotonic()
                jobs.send(int(process.group(1)), self.fault.number)
                return

    def wait_for_the_end(self, job):
        until = self.begin + self.check.limit(self.fault.ended + MORE_TIME)
        try:
            while self.hear(job, until) is not None:
                pass
            job.process.wait(max(0.01, until - time.monotonic()))
        except Exception as error:
            raise Trouble(f"had not ended {time.monotonic() - self.begin:.0f} s later: "
                          f"{jobs.last_lines(self.text())}") from error
        self.end, self.code = time.monotonic(), job.process.returncode
        self.alive = [int(pid) for pid in re.findall(r"is process (\d+)", self.text()) if jobs.is_alive(int(pid))]

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def named(self):
        """The time and the text of the first line that names rank 1 as the culprit."""
        for at, line in self.lines:
            if self.begin and at >= self.begin and re.search(r"\brank 1\b", line) and "does it now" not in line:
                return at - self.begin, line.strip()
        return None

    def rows(self, before):
        """The rows of this fault. `before`: MiB in use before the job."""
        what = self.what
        bar_named, bar_ended = f"within {self.fault.named} s", f"within {self.fault.ended} s, 0 processes, 0 MiB"
        found = self.named()
        if found is None:
            reason = self.trouble or f"not named: {jobs.last_lines(self.text(), 3)}"
            rows = [table.failed(f"{what}: the culprit is named", reason, bar_named)]
        else:
            rows = [table.row(f"{what}: the culprit is named", f"after {found[0]:.1f} s: {found[1][:120]}", bar_named,
                              round(found[0], 1) <= self.fault.named)]
        if self.end is None:
            return [*rows, table.failed(f"{what}: all end", self.trouble or "it did not end", bar_ended)]
        seconds, left = self.end - self.begin, max(0, machine.used_memory() - before)
        text = f"code {self.code} after {seconds:.1f} s, {len(self.alive)} processes and {left} MiB left"
        holds = self.code != 0 and round(seconds, 1) <= self.fault.ended and not self.alive and left <= 1
        return [*rows, table.row(f"{what}: all end", text, bar_ended, holds)]


def task(check, faults):
    """A task: the faults, on 2 and on 3 ranks, all at the same time."""
    def work():
        before = machine.used_memory()
        watched = [Watched(check, fault, ranks) for fault in faults for ranks in RANKS]
        threads = [threading.Thread(target=one.run, daemon=True) for one in watched]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until = time.monotonic() + 3  # the driver needs a moment to take memory back
        while machine.used_memory() > before + 1 and time.monotonic() < until:
            time.sleep(0.2)
        return [row for one in watched for row in one.rows(before)]
    return Task(" and ".join(fault.what.format("2 and 3") for fault in faults), "named, ended, nothing left", work)


def run(check):
    check.builds.end_warm_ups(check.limit(60))
    check.builds.wait(FLOORS)
    check.one_by_one("faults", [task(check, [KILL]), task(check, [EXCEPTION]), task(check, [MISMATCH]),
                                task(check, [KERNEL]), task(check, [STOP, ENDLESS])])
