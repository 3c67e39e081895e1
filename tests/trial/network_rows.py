"""Rows of the fault matrix that break the network between the ranks. For scripts/check/faults."""
import random
import time

from fault_run import Failure, Run, check_survivors, expect
from network import Link

SILENT = ("no sign of life", "the job's store", "cannot reach")  # words in the error of a rank that receives nothing
BAD_LINK = {"delay": 0.2, "loss": 0.01, "mbit": 10, "split": 128}
PATIENCE = 300  # seconds that row 7 may need beyond its working time


def check_lost(run, who, words):
    """Every rank must have lost a peer, and one must say how, in one of `words`. The kernel's own timeouts are far longer, so they ended no rank."""
    texts = []
    for process in who:
        end = run.end(process)
        expect(end["type"] == "PeerLost" and process.returncode == end["code"] == 79, f"rank {process.rank} ended with {end['type']}")
        texts.append(end["text"])
    expect(any(word in text for text in texts for word in words), f"nobody says one of {words}")


def cut(path, options, seed, sides, bound, words=SILENT):
    """Runs a row in which ranks are cut off. `sides` cuts them off, and returns the ranks that the fault concerns."""
    dice = random.Random(seed)
    ranks = dice.choice(options.ranks)
    options.network.reset(seed)
    # With `stay`, a rank that has thrown does not end, so the others do not learn of it from its end.
    stay = seed % 2 == 1
    run = Run(path, options, ranks, "work_and_stay" if stay else "work", seed, network=options.network)
    about = []
    try:
        run.wait_ready()
        time.sleep(dice.random() * 0.2)
        about = sides(options.network, dice, ranks)
        since = time.monotonic()
        run.wait(run.processes, bound + (9 if stay else 0), since)
        taken = max(run.end(process).get("at", 0) for process in run.processes) - since
        expect(taken <= bound * options.slack, f"it took {taken:.2f} s, {bound} s are allowed")
        expect(taken > 5, f"ranks that were silent for {taken:.1f} s were given up")
        check_lost(run, run.processes, words)
        if len(about) == 1:
            check_survivors(run, [p for p in run.processes if p.rank != about[0]], run.processes[about[0]])
        else:
            pids = [f"pid {run.processes[rank].pid}" for rank in about]
            texts = [run.end(process)["text"] for process in run.processes]
            expect(all(any(pid in text for pid in pids) or "store" in text or "missing" in text for text in texts),
                   f"not everybody names rank {about[0]} or {about[1]}")
        return taken
    except Failure as failure:
        raise Failure(f"{failure}\nranks {ranks}, cut off: {about}\n{run.report()}") from None
    finally:
        run.close()
        options.network.reset(0)


def partition(path, options, seed):
    """Row 5. A rank that leaves a part of the group just then waits 2 s for its farewell, and then 10 s."""
    def sides(network, dice, ranks):
        victim = dice.randrange(ranks)
        network.isolate(victim)
        return [victim]

    return cut(path, options, seed, sides, 13)


def one_way(path, options, seed):
    """Row 6: all packets from a rank are lost, or all packets to a rank, or those from one rank to one other."""
    def sides(network, dice, ranks):
        victim = dice.randrange(ranks)
        if seed % 3 < 2:
            network.isolate(victim, outward=seed % 3 == 0, inward=seed % 3 == 1)
            return [victim]
        other = (victim + 1 + dice.randrange(ranks - 1)) % ranks
        network.cut = {(victim, other)}
        return [victim, other]

    return cut(path, options, seed, sides, 15)


def forget(path, options, seed):
    """Row 30. Of each three connections, the first is for signs of life, which remains; the next two, for messages and for data, are forgotten."""
    def sides(network, dice, ranks):
        who, other = dice.sample(range(ranks), 2)
        network.forget(who, other, keep=lambda i: i % 3 == 0)
        return [who, other]

    return cut(path, options, seed, sides, 15, ("broke while it lives (nothing came back", "what it sent before does not come"))


def slow(path, options, seed):
    """Row 7: a slow network that loses packets."""
    seconds = round(options.minutes * 60)
    ranks = max(options.ranks)
    options.network.reset(seed, Link(**BAD_LINK))
    run = Run(path, options, ranks, "work_for", seed, join=seconds, network=options.network)
    try:
        since = time.monotonic()
        taken = run.wait(run.processes, seconds + PATIENCE, since, limit=seconds + PATIENCE)
        for process in run.processes:
            end = run.end(process)
            expect(end["type"] == "none" and process.returncode == 0, f"rank {process.rank} ended with {end['type']}")
        print(f"row 7: {ranks} ranks, {run.end(run.processes[0])['text']}, all right", flush=True)
        return taken
    except Failure as failure:
        raise Failure(f"{failure}\nranks {ranks}\n{run.report()}") from None
    finally:
        run.close()
        options.network.reset(0)


def end_early(path, options, seed):
    """Row 29: ranks end early, on one machine, over a network, or over a network that loses packets."""
    dice = random.Random(seed)
    ranks = dice.choice(options.ranks)
    network = options.network if seed % 3 else None
    if network:
        network.reset(seed, Link(delay=0.02, loss=0.05) if seed % 3 == 2 else Link())
    run = Run(path, options, ranks, "end_early", seed, network=network)
    try:
        run.wait_ready()
        taken = run.wait(run.processes, 15, time.monotonic())
        for process in run.processes:
            end = run.end(process)
            expect(end["type"] == "none" and process.returncode == 0, f"rank {process.rank} ended with {end['type']}")
        return taken
    except Failure as failure:
        raise Failure(f"{failure}\nranks {ranks}, {('one machine', 'network', 'network with losses')[seed % 3]}\n{run.report()}") from None
    finally:
        run.close()
