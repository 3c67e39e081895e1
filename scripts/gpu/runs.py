"""Runs of reigen-train: their command lines, losses, norms and weights, and the text that gpt learns."""
import json
import math
import shutil

from gpu import data, table, weights
from gpu.jobs import Trouble

BATCH = {"mnist": 64, "mlp": 64, "gpt": 64, "resnet18": 48}
# Small models. 4 samples that are normalised together divide the batches of 1 to 4 ranks and of their micro-batches.
OPTIONS = {"mnist": [],
           "mlp": ["--model.layers", 2, "--model.dim", 128],
           "gpt": ["--model.layers", 2, "--model.dim", 64, "--model.heads", 4, "--model.context", 32],
           "resnet18": ["--model.width", 8, "--model.norm_batch", 4]}
# A limit below the norms of the first steps. With a limit metrics.jsonl has the norms.
CLIP = ["--train.clip_norm", 0.5]
CUDA = ["--train.device", "cuda"]


def steps_of(check):
    return check.pick(20, 5)


class Run:
    def __init__(self, folder, log):
        self.folder, self.log = folder, log

    def lines(self):
        return metrics(self.folder)

    def losses(self):
        return [line["loss"] for line in self.lines()]

    def norms(self):
        return [line.get("grad_norm") for line in self.lines()]

    def model(self):
        return self.folder / "model.safetensors"

    def summary(self):
        return json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))


def metrics(folder):
    """The lines of steps in metrics.jsonl. The last line may be incomplete while the run goes on."""
    try:
        text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    except OSError:
        return []
    whole = text[:text.rfind("\n") + 1]
    return [line for line in map(json.loads, whole.splitlines()) if "loss" in line]


def command(check, recipe, options, ranks=1, threads=False):
    """The words that start reigen-train. Ranks are processes, or threads of one process."""
    program = check.torch / "bin" / "reigen-train"
    if threads:
        return [program, recipe, "-n", ranks, "--run.ranks", "threads", *options]
    if ranks == 1:
        return [program, recipe, *options]
    return [check.torch / "bin" / "reigen", "run", "--no-mps", "--prefix", "none", "-n", ranks, program, recipe, *options]


def variables(threads):
    """CUDA must not load kernels while ranks that are threads wait for each other."""
    return {"REIGEN_LOG": "info", "CUDA_MODULE_LOADING": "EAGER" if threads else None}


def start(check, name, recipe, options, ranks=1, threads=False, limit=90, variables_too=None):
    """Trains. Returns the ended program and the run."""
    folder = check.runs / name
    words = command(check, recipe, ["--run.dir", folder, *options], ranks, threads)
    ended = check.run(f"run_{name}", words, limit, {**variables(threads), **(variables_too or {})})
    return ended, Run(folder, ended.output)


def trained(check, name, recipe, options, ranks=1, threads=False, limit=90):
    """Trains, and must end well. A run of the same name is made once."""
    def make():
        ended, run = start(check, name, recipe, options, ranks, threads, limit)
        if not ended.is_well():
            raise Trouble(f"run {name}: {ended.reason()}")
        return run
    return check.once.get(name, make)


def small_data(check, recipe):
    """Data for a few more steps than the runs make."""
    make = {"mnist": lambda: data.digits(check.runs / "digits", 1600, 40),
            "resnet18": lambda: data.pictures(check.runs / "pictures", check.pick(1100, 300), 20),
            "gpt": lambda: data.text(check.runs / "small_text", 12_000, 100)}
    kind = "mnist" if recipe == "mlp" else recipe
    return check.once.get(f"data of {kind}", make[kind])


def small_options(check, recipe, *more, steps=None):
    return ["--train.max_steps", steps or steps_of(check), "--train.global_batch", BATCH[recipe],
            "--train.threads", 2, "--data.path", small_data(check, recipe), *OPTIONS[recipe], *CLIP, *more]


def whole(check, name, recipe, *more, ranks=1, threads=False):
    """A small run with these options. Weights are not divided between the ranks unless the options say so."""
    if "--parallel.shard" not in more:
        more = (*more, "--parallel.shard", "none")
    return trained(check, name, recipe, small_options(check, recipe, *more), ranks, threads)


def relative(mine, theirs):
    """The largest relative difference of two lists of numbers."""
    if not mine or len(mine) != len(theirs) or None in mine or None in theirs:
        return math.inf
    if mine == theirs:
        return 0.0
    return max(abs(a - b) / abs(b) if b else math.inf for a, b in zip(mine, theirs))


def same_losses(what, mine, theirs, bar):
    found = relative(mine.losses(), theirs.losses())
    return table.row(what, f"losses apart by {found:.1e}", f"{bar:.0e}" if bar else "0", found <= bar)


def same_training(what, mine, theirs, bar):
    """Compares losses, norms of gradients, and weights without the statistics of batches."""
    found = {"losses": relative(mine.losses(), theirs.losses()), "norms": relative(mine.norms(), theirs.norms()),
             "weights": weights.apart(mine.model(), theirs.model(), weights.STATISTICS)}
    text = ", ".join(f"{name} {value:.1e}" for name, value in found.items())
    return table.row(what, f"apart: {text}", f"{bar:.0e}", max(found.values()) <= bar)


def same_bits(what, mine, theirs):
    losses, model = mine.losses() == theirs.losses() != [], weights.same_bits(mine.model(), theirs.model())
    text = f"losses {'the same' if losses else 'differ'}, weights {'the same' if model else 'differ'}"
    return table.row(what, text, "bitwise", losses and model)


def text_folder(check):
    """A text that GPT-2 can learn."""
    return check.once.get("text", lambda: data.text(check.runs / "text", check.pick(1_700_000, 30_000), 500))


def large_digits(check):
    """As many digits as MNIST has, so that a run validates seldom."""
    count = check.pick(60_000, 6_000)
    return check.once.get("large digits", lambda: data.digits(check.runs / "large_digits", count, 40))


def gpt2(check, batch, *more):
    """GPT-2 124M in bf16 with clipping and AdamW, on windows of a text file. The vocabulary is a multiple of 64."""
    sizes = check.pick([12, 768, 12, 1024, 50304], [2, 32, 2, 32, 64])
    words = []
    for name, value in zip(("layers", "dim", "heads", "context", "vocab"), sizes):
        words += [f"--model.{name}", value]
    return [*words, "--train.global_batch", batch, "--train.precision", "bf16", "--train.clip_norm", 1.0,
            "--data.path", text_folder(check), *CUDA, *more]


def context(check):
    return check.pick(1024, 32)


def drop(run):
    shutil.rmtree(run.folder, ignore_errors=True)
