"""What all parts of a check share: its folders, its table, its sizes, and how it runs several tasks at a time."""
import os
import re
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gpu import jobs, table
from gpu.jobs import Trouble

ROOM_FOR_RUNS = 12 << 30  # the largest run writes 3 GB, and several may be there at a time


@dataclass(frozen=True)
class Task:
    """A task has a name and a bar for the row that says why it could not be done. work() returns a list of rows."""
    name: str
    bar: str
    work: object


class Check:
    def __init__(self, root, lines, gpus, small=False, built=None):
        """`small`: short runs and small sizes. `built`: a build folder whose programs are checked; None: build them."""
        self.root, self.table, self.gpus, self.small, self.built = root, lines, gpus, small, built
        self.folder = root / "build" / "gpu"
        self.floors = built or self.folder
        self.torch = built or root / "build" / "gpu_torch"
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.cores = os.cpu_count() or 1
        self.runs = self.folder_of_runs()
        self.once = Once()
        self.builds = None  # build.Builds

    def folder_of_runs(self):
        """A folder in memory if there is room, because checkpoints are written faster there."""
        shared = Path("/dev/shm")
        try:
            if shutil.disk_usage(shared).free >= ROOM_FOR_RUNS:
                return Path(tempfile.mkdtemp(prefix="reigen_gpu_check_", dir=shared))
        except OSError:
            pass  # this system has no such folder
        runs = self.folder / "runs"
        shutil.rmtree(runs, ignore_errors=True)
        runs.mkdir(parents=True)
        return runs

    def drop_runs(self):
        shutil.rmtree(self.runs, ignore_errors=True)

    def pick(self, usual, small):
        return small if self.small else usual

    def limit(self, seconds):
        """A time limit. A small machine without a GPU takes longer."""
        return seconds * self.pick(1, 8)

    def log_of(self, name):
        return self.logs / (re.sub(r"[^\w.-]+", "_", name) + ".log")

    def run(self, name, command, limit, variables=None):
        return jobs.run(command, self.limit(limit), self.log_of(name), variables, folder=self.root)

    def must_run(self, name, command, limit, variables=None):
        """Runs a program that must end with 0. Returns its output."""
        ended = self.run(name, command, limit, variables)
        if not ended.is_well():
            raise Trouble(f"{name}: {ended.reason()}")
        return ended.output

    def start(self, name, command, variables=None, talks=False):
        return jobs.Job(command, self.log_of(name), variables, talks, folder=self.root)

    def together(self, part, tasks, needs=None):
        """Does the tasks, several at a time, and adds their rows in the order of the tasks. `needs`: a build."""
        pool = ThreadPoolExecutor(max(1, min(8, self.cores // 2)))
        futures = [pool.submit(self.rows_of, task, needs) for task in tasks]
        try:
            for future in futures:
                for one in future.result():
                    self.table.add(part, one)
        except BaseException:  # somebody ends this program: the tasks end when their programs do
            jobs.end_everything()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def one_by_one(self, part, tasks, needs=None):
        for task in tasks:
            for one in self.rows_of(task, needs):
                self.table.add(part, one)

    def rows_of(self, task, needs):
        """The rows of a task. If the task cannot be done, one row says why."""
        try:
            if needs:
                self.builds.wait(needs)
            return task.work()
        except Trouble as trouble:
            return [table.failed(task.name, str(trouble), task.bar)]
        except Exception as error:  # a mistake of this program must not end the other rows
            return [table.failed(task.name, f"{type(error).__name__}: {error}", task.bar)]


class Once:
    """Results that several tasks need. The first task that asks for a result makes it, and the others wait for it."""

    def __init__(self):
        self.lock, self.entries = threading.Lock(), {}

    def get(self, key, make):
        with self.lock:
            entry = self.entries.setdefault(key, {"lock": threading.Lock()})
        with entry["lock"]:
            if "error" not in entry and "value" not in entry:
                try:
                    entry["value"] = make()
                except Trouble as trouble:
                    entry["error"] = trouble
            if "error" in entry:
                raise entry["error"]
            return entry["value"]
