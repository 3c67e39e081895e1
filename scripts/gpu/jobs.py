"""Starts programs. Each has a process group of its own and a time limit, and no process stays behind."""
import ctypes
import os
import queue
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36


class Trouble(Exception):
    """Why something could not be measured or compared. The text becomes what a row has found."""


class Living:
    """The processes that this program has started and that have not ended yet."""

    def __init__(self):
        self.lock, self.processes, self.is_over = threading.Lock(), set(), False

    def start(self, command, **options):
        with self.lock:
            if self.is_over:
                raise Trouble("the check was ended")
            process = subprocess.Popen([str(word) for word in command], start_new_session=True, **options)
            self.processes.add(process)
            return process

    def forget(self, process):
        with self.lock:
            self.processes.discard(process)

    def end_all(self):
        with self.lock:
            self.is_over, processes = True, list(self.processes)
        for process in processes:
            end(process)


LIVING = Living()


def adopt_orphans():
    """From now on a process whose parent has ended becomes a child of this program, which ends it at its own end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processes():
    """process id -> (id of the parent, letter of the state) of all processes."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # the process has just ended
        found[int(entry)] = (int(fields[1]), fields[0])
    return found


def is_alive(pid):
    return processes().get(pid, (0, "Z"))[1] not in "ZX"


def descendants(pid):
    parents = processes()
    found, more = [], [pid]
    while more:
        more = [child for child, (parent, _) in parents.items() if parent in more]
        found += more
    return found


def send(pid, number, group=False):
    try:
        (os.killpg if group else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended


def end(process):
    """Kills the process, its group, and all processes that it has started."""
    started = descendants(process.pid)
    send(process.pid, signal.SIGKILL, group=True)
    for pid in started:
        send(pid, signal.SIGKILL)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        pass  # it hangs in the kernel, and ends when the kernel lets it
    LIVING.forget(process)


def end_everything():
    LIVING.end_all()
    for pid in descendants(os.getpid()):
        send(pid, signal.SIGKILL)


def with_variables(variables):
    """The environment with these variables. A variable that is None is left out."""
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    for key, value in (variables or {}).items():
        environment.pop(key, None)
        if value is not None:
            environment[key] = str(value)
    return environment


def last_lines(text, count=1):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-count:])[-300:]


def how_it_ended(code, output):
    if code is None:
        return "it has not ended"
    if code < 0:
        try:
            how = f"killed by {signal.Signals(-code).name}"
        except ValueError:
            how = f"killed by signal {-code}"
    else:
        how = f"exit code {code}"
    return f"{how}: {last_lines(output)}" if output.strip() else how


@dataclass
class Ended:
    """A program that has ended, or was ended because it ran into its limit."""
    code: int
    output: str
    seconds: float
    limit: float
    timed_out: bool

    def is_well(self):
        return self.code == 0 and not self.timed_out

    def reason(self):
        if self.timed_out:
            return f"ran into its limit of {self.limit:.0f} s: {last_lines(self.output)}"
        return how_it_ended(self.code, self.output)


def run(command, limit, log, variables=None, folder=None):
    """Runs a program to its end. Its output goes to the file `log`."""
    begin, timed_out = time.monotonic(), False
    with open(log, "wb") as out:
        try:
            process = LIVING.start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   env=with_variables(variables), cwd=folder)
        except OSError as error:
            return Ended(127, str(error), 0, limit, False)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            end(process)
    output = log.read_text(encoding="utf-8", errors="replace")
    return Ended(process.returncode, output, time.monotonic() - begin, limit, timed_out)


class Job:
    """A program that runs while others are measured. With `talks` it is asked by lines, and answers by lines."""

    def __init__(self, command, log, variables=None, talks=False, folder=None):
        self.log, self.lines = log, queue.Queue()
        with open(log, "wb") as out:
            pipe = subprocess.PIPE if talks else None
            try:
                self.process = LIVING.start(command, stdin=pipe or subprocess.DEVNULL, stdout=pipe or out,
                                            stderr=out if talks else subprocess.STDOUT, env=with_variables(variables),
                                            cwd=folder)
            except OSError as error:
                raise Trouble(str(error)) from error
        if talks:
            threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line.decode("utf-8", errors="replace").rstrip("\n")))
        self.lines.put(None)

    def output(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_running(self):
        return self.process.poll() is None

    def require_running(self):
        if not self.is_running():
            raise Trouble(how_it_ended(self.process.returncode, self.output()))

    def say(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Trouble(how_it_ended(self.process.poll(), self.output())) from error

    def hear(self, limit):
        """The next line, or None if the program closed its output."""
        try:
            heard = self.lines.get(timeout=limit)
        except queue.Empty as error:
            raise Trouble(f"no answer within {limit:.0f} s: {last_lines(self.output())}") from error
        return None if heard is None else heard[1]

    def signal(self, number):
        send(self.process.pid, number)

    def end(self):
        end(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # what was written to it is lost, and nobody needs it
