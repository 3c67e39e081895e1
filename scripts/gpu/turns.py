"""Measures several programs in turn, so that a change of the machine's speed meets all of them.

A contestant has the functions prepare(), turn(seconds), speeds() and end(). A run of reigen-train is stopped between
its turns; its own file says how fast the steps of a turn were. PyTorch's side makes the steps that it is asked for.
"""
import signal
import statistics
import threading
import time

from gpu import runs, table
from gpu.jobs import Trouble, processes

STEPS_BEFORE = 3  # steps of a turn that do not count, because the GPU's queue was empty before them
FLUSHED_AFTER = 0.7  # seconds after which metrics.jsonl has the lines of earlier steps


class Contestant:
    """`trouble` says why this contestant could not be measured; None if it could."""

    def __init__(self, name):
        self.name, self.trouble = name, None

    def attempt(self, action):
        if self.trouble is not None:
            return None
        try:
            return action()
        except Trouble as trouble:
            self.trouble = f"{self.name}: {trouble}"
        except Exception as error:  # a mistake of this program must not end the other measurements
            self.trouble = f"{self.name}: {type(error).__name__}: {error}"
        return None


class Training(Contestant):
    """One or more runs of reigen-train. Several runs do not know of each other; their speeds are added."""

    def __init__(self, check, name, recipe, options, ranks=1, copies=1, variables=None):
        super().__init__(name)
        self.check, self.recipe, self.options = check, recipe, options
        self.ranks, self.copies, self.variables = ranks, copies, variables or {}
        self.batch = options[options.index("--train.global_batch") + 1]
        self.jobs, self.folders, self.windows = [], [], []

    def prepare(self):
        """Starts the runs, waits until they have warmed up, and stops them."""
        for copy in range(self.copies):
            name = f"turns_{self.name}_{copy}".replace(" ", "_").replace(",", "")
            folder = self.check.runs / name
            options = ["--run.dir", folder, "--train.epochs", 10000, "--train.threads", 2, *self.options]
            words = runs.command(self.check, self.recipe, options, self.ranks)
            self.folders.append(folder)
            self.jobs.append(self.check.start(name, words, {"REIGEN_LOG": "info", **self.variables}))
        self.wait_for_steps(self.check.pick(12, STEPS_BEFORE + 2), self.check.limit(60))
        self.pause()

    def wait_for_steps(self, steps, limit):
        until = time.monotonic() + limit
        while not all(len(runs.metrics(folder)) >= steps for folder in self.folders):
            self.require_running()
            if time.monotonic() > until:
                raise Trouble(f"made fewer than {steps} steps in {limit:.0f} s")
            time.sleep(0.1)

    def require_running(self):
        for job in self.jobs:
            job.require_running()

    def pause(self):
        """Stops the runs. The launcher stops its ranks as on Ctrl-Z."""
        for job in self.jobs:
            job.signal(signal.SIGSTOP if self.ranks == 1 else signal.SIGTSTP)
        until = time.monotonic() + 5
        while any(processes().get(job.process.pid, (0, "T"))[1] not in "TtZ" for job in self.jobs):
            if time.monotonic() > until:
                raise Trouble("could not be stopped between its turns")
            time.sleep(0.01)
        time.sleep(0.05)  # what is in the GPU's queue ends

    def go_on(self):
        self.require_running()
        for job in self.jobs:
            job.signal(signal.SIGCONT)

    def turn(self, seconds):
        self.go_on()
        begin = time.time()
        time.sleep(seconds)
        end = time.time()
        self.pause()
        self.windows.append((begin, end))

    def speeds(self):
        """Samples per second of each turn."""
        self.go_on()
        time.sleep(FLUSHED_AFTER)
        until = time.monotonic() + self.check.limit(20)
        while min(self.latest()) < self.windows[-1][1]:
            self.require_running()
            if time.monotonic() > until:
                raise Trouble("made no more steps after its turns")
            time.sleep(0.1)
        self.pause()
        all_lines = [runs.metrics(folder) for folder in self.folders]
        return [sum(self.speed_in(lines, window) for lines in all_lines) for window in self.windows]

    def latest(self):
        return [lines[-1]["time"] if lines else 0 for lines in map(runs.metrics, self.folders)]

    def speed_in(self, lines, window):
        made = [line["step_ms"] for line in lines if window[0] < line["time"] <= window[1]]
        times = made[self.check.pick(STEPS_BEFORE, 1):]
        if len(times) < self.check.pick(2, 1):
            raise Trouble(f"made only {len(made)} steps in a turn of {window[1] - window[0]:.1f} s")
        return self.batch * len(times) / sum(times) * 1000

    def end(self):
        for job in self.jobs:
            job.end()
        self.jobs = []


class Peer(Contestant):
    """PyTorch's side. `request` says what a step is."""

    def __init__(self, torch, name, **request):
        super().__init__(name)
        self.torch, self.request, self.found, self.prepared = torch, request, [], None

    def prepare(self):
        """Compiles and warms up. The answer also says how much memory steps take."""
        answers = self.torch.ask(240, do="train", seconds=0, **self.request)
        self.prepared = answers[0] if isinstance(answers, list) else answers

    def turn(self, seconds):
        # Ranks must make the same number of steps.
        steps = {} if self.torch.ranks == 1 else {"steps": max(2, round(seconds * 1000 / self.prepared["step_ms"]))}
        answers = self.torch.ask(60, do="train", seconds=seconds, **steps, **self.request)
        answers = answers if isinstance(answers, list) else [answers]
        self.found.append(sum(answer["samples_per_s"] for answer in answers))

    def speeds(self):
        return self.found

    def end(self):
        pass  # the process may be asked for other things


def prepare(contestants):
    """Prepares the contestants at the same time. Requests to one process of PyTorch go one after the other."""
    trainings = [one for one in contestants if isinstance(one, Training)]
    threads = [threading.Thread(target=one.attempt, args=(one.prepare,), daemon=True) for one in trainings]
    for thread in threads:
        thread.start()
    for one in contestants:
        if one not in trainings:
            one.attempt(one.prepare)
    for thread in threads:
        thread.join()


class Results:
    """The speeds of all contestants in each round."""

    def __init__(self, contestants):
        self.speeds = {}
        self.contestants = {one.name: one for one in contestants}

    def require(self, *names):
        for name in names:
            if self.contestants[name].trouble is not None:
                raise Trouble(self.contestants[name].trouble)

    def ratio(self, mine, theirs):
        """The median of mine / theirs over the rounds."""
        self.require(mine, theirs)
        return statistics.median(a / b for a, b in zip(self.speeds[mine], self.speeds[theirs]))

    def median(self, name):
        self.require(name)
        return statistics.median(self.speeds[name])

    def row(self, what, mine, theirs, bar, unit="samples/s", factor=1):
        """A row: the speed of one contestant, as a multiple of another one's, must reach the bar."""
        try:
            ratio = self.ratio(mine, theirs)
        except Trouble as trouble:
            return table.failed(what, str(trouble), f"{bar:.2f}")
        mine, theirs = factor * self.median(mine), factor * self.median(theirs)
        return table.at_least(what, ratio, bar, f" ({mine:.0f} and {theirs:.0f} {unit})")


def measure(contestants, rounds, seconds):
    """Lets each prepared contestant work for some seconds in each round. No contestant is always the first."""
    for number in range(rounds):
        shift = number % len(contestants)
        for one in contestants[shift:] + contestants[:shift]:
            one.attempt(lambda one=one: one.turn(seconds))
    results = Results(contestants)
    for one in contestants:
        results.speeds[one.name] = one.attempt(one.speeds) or []
    return results
