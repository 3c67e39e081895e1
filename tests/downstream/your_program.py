#!/usr/bin/env python3
"""Runs the programs of docs/your_program.md and docs/data.md, built with the installed package, on 1, 2 and 3 ranks: the losses must
be the same.

    your_program.py BUILD REIGEN LIBREIGEN_C SOURCE SCRATCH
"""
import io
import json
import random
import re
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

BUILD, REIGEN, LIBRARY, SOURCE, SCRATCH = (Path(word) for word in sys.argv[1:6])
RANKS = (1, 2, 3)


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def by_launcher(ranks, *words):
    return run(REIGEN, "run", "-n", ranks, "--prefix", "none", *words)


def losses_in(text):
    return [float(number) for number in re.findall(r" (?:loss|mean) ([0-9.]+)$", text, re.MULTILINE)]


def losses_of_run(directory):
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def require_equal(name, losses, steps=None):
    """The losses of each number of ranks, which must be the same, or those of the first `steps` of them."""
    first = losses[0]
    if len(first) < 6 or not first[-1] < first[0]:
        sys.exit(f"{name} learns nothing: {first}")
    for ranks, others in zip(RANKS, losses):
        if len(others) != len(first) or any(abs(a - b) > 1e-5 * abs(a) for a, b in list(zip(first, others))[:steps]):
            sys.exit(f"{name}: other losses on {ranks} ranks\n{first}\n{others}")


def rows():
    for i in range(126):
        x, y, z = (i * 7 % 21) / 21, (i * 5 % 18) / 18, (i * 11 % 14) / 14
        yield f"{x:.4f},{y:.4f},{z:.4f},{x * y - z:.6f}"


(SCRATCH / "table.csv").write_text("\n".join(rows()) + "\n")
loops = [by_launcher(n, BUILD / "own_loop", SCRATCH / "table.csv", SCRATCH / f"own_loop_{n}") for n in RANKS]
require_equal("own_loop", [losses_in(text) for text in loops])
if "going on after step 24" not in by_launcher(2, BUILD / "own_loop", SCRATCH / "table.csv", SCRATCH / "own_loop_3"):
    sys.exit("own_loop does not go on from its checkpoint")

for name in ("own_task", "two_inputs"):
    for n in RANKS:
        run(BUILD / name, "-n", n, "--run.dir", SCRATCH / f"{name}_{n}")
    require_equal(name, [losses_of_run(SCRATCH / f"{name}_{n}") for n in RANKS])
if "--loss.quantile" not in run(BUILD / "own_task", "--help"):
    sys.exit("own_task --help does not list its own options")



def lines_of(directory):
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    times = ("time", "samples_per_s", "step_ms", "data_ms", "forward_ms", "backward_ms", "comm_exposed_ms", "optimizer_ms")
    return [{key: value for key, value in line.items() if key not in times} for line in lines]


def shapes():
    """Fit on 1 and 3 ranks as a loop by hand does, stop, resume, test, predict."""
    lines = (SOURCE / "shapes.cc").read_text().splitlines()
    if len(lines) > 60:
        sys.exit(f"shapes.cc has {len(lines)} lines, more than 60")
    whole = {}
    for n in (1, 3):
        directory = whole[n] = SCRATCH / f"shapes_{n}"
        run(BUILD / "shapes", "-n", n, "--run.dir", directory, "--train.epochs", 2)
        by_hand = by_launcher(n, BUILD / "shapes_by_hand").splitlines()
        losses = [float(line) for line in by_hand if not line.startswith("epoch")]
        if losses_of_run(directory) != losses:
            sys.exit(f"shapes on {n} ranks has other losses than the loop by hand\n{losses_of_run(directory)}\n{losses}")
        epochs = [line["epoch_means"]["training_accuracy"] for line in lines_of(directory) if "epoch_means" in line]
        if epochs != [float(line.split()[1]) for line in by_hand if line.startswith("epoch")]:
            sys.exit(f"shapes on {n} ranks has other figures than the loop by hand: {epochs}")
        if not list(directory.glob("events.out.tfevents.*")) or "largest_score" not in lines_of(directory)[0]:
            sys.exit("shapes lacks TensorBoard's file, or a figure of its own")
    stopped = SCRATCH / "shapes_stopped"
    words = [str(word) for word in (BUILD / "shapes", "-n", 3, "--run.dir", stopped, "--train.epochs", 2)]
    code = subprocess.run([*words, "--run.stop_after", "0.001"], capture_output=True, text=True, timeout=300).returncode
    if code != 75:
        sys.exit(f"shapes ended with {code} in place of 75 when it was stopped")
    run(*words, "--run.resume", "true")
    if lines_of(stopped) != lines_of(whole[3]):
        sys.exit("shapes, stopped and resumed, has other lines than the undisturbed run")
    run(BUILD / "shapes", "test", "-n", 2, "--run.dir", stopped)
    accuracy = json.loads((stopped / "test.json").read_text())["accuracy"]
    if abs(accuracy - json.loads((whole[3] / "summary.json").read_text())["accuracy"]) > 1e-12:
        sys.exit(f"shapes test gives another accuracy than the run: {accuracy}")
    run(BUILD / "shapes", "predict", "-n", 2, "--run.dir", stopped)
    if not (stopped / "predictions.safetensors").stat().st_size > 150 * 8:
        sys.exit("shapes predict wrote too little")
    tuned = SCRATCH / "shapes_tuned"  # its own weights are tested, not those with which it began
    run(BUILD / "shapes", "-n", 2, "--run.dir", tuned, "--run.weights", whole[3] / "model.safetensors", "--optim.lr", 1e-5)
    run(BUILD / "shapes", "-n", 1, "--run.dir", tuned, "--run.resume", "true", "--train.epochs", 9, "--optim.lr", 1)
    run(BUILD / "shapes", "test", "--run.dir", tuned)
    summary, tested = (json.loads((tuned / name).read_text())["accuracy"] for name in ("summary.json", "test.json"))
    if summary != tested or tested == accuracy:
        sys.exit(f"shapes test of a run with --run.weights: {tested}, the run has {summary}, and it began with {accuracy}")
    run(BUILD / "shapes", "validate", "--run.weights", whole[3] / "model.safetensors", "--model.channels", 8)


def picture(colour, draw):
    """A PNG of 40 x 36 pixels: one colour with noise."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + bytes(min(255, value + draw.randrange(60)) for _ in range(40) for value in colour) for _ in range(36))
    header = struct.pack(">IIBBBBB", 40, 36, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def photos():
    """flowers from folders, and own_data_loop from a container of the same photos."""
    folder, draw = SCRATCH / "photos", random.Random(1)
    for part, count in (("train", 64), ("val", 5)):
        for number, colour in enumerate(((190, 40, 40), (40, 190, 40), (40, 40, 190))):
            (folder / part / f"kind{number}").mkdir(parents=True)
            for i in range(count):
                (folder / part / f"kind{number}" / f"{i:03}.png").write_bytes(picture(colour, draw))
    lines = (SOURCE / "flowers.cc").read_text().splitlines()
    if len(lines) > 60:
        sys.exit(f"flowers.cc has {len(lines)} lines, more than 60")
    # Each rank has whole parts of 32 samples, which batch norm takes together. The programs compute in fp32, where other orders of sums
    # round differently, and a ResNet makes that larger from step to step. So only the first steps are compared.
    words = ("--data.path", folder, "--train.global_batch", 192, "--model.classes", 3, "--model.depth", 18, "--data.size", 32,
             "--train.epochs", 6, "--validate.every", 6, "--optim.name", "sgd", "--optim.lr", 0.002)
    for n in RANKS:
        run(BUILD / "flowers", "-n", n, "--run.dir", SCRATCH / f"flowers_{n}", *words)
    require_equal("flowers", [losses_of_run(SCRATCH / f"flowers_{n}") for n in RANKS], steps=2)
    if json.loads((SCRATCH / "flowers_3" / "summary.json").read_text())["test_samples"] != 15:
        sys.exit("flowers did not validate the 15 photos")
    run(REIGEN, "data", "pack", folder / "train", SCRATCH / "photos.tar")
    require_equal("own_data_loop", [losses_in(by_launcher(n, BUILD / "own_data_loop", SCRATCH / "photos.tar")) for n in RANKS], steps=2)


def numpy_file(shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values)


def tensors():
    """two_inputs_hdf5 from a file that is packed from a tar of arrays."""
    draw = random.Random(2)
    with tarfile.open(SCRATCH / "measured.source.tar", "w") as tar:
        for i in range(225):
            seen, row = [draw.uniform(-1, 1) for _ in range(64)], [draw.uniform(-1, 1) for _ in range(4)]
            for name, shape, values in (("picture", (1, 8, 8), seen), ("row", (4,), row), ("number", (), [sum(row)])):
                data = numpy_file(shape, values)
                info = tarfile.TarInfo(f"{i:04}.{name}.npy")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    if not re.search(r"^HDF5 [0-9]", run(REIGEN, "data", "--version"), re.MULTILINE):
        print("two_inputs_hdf5 was not run: HDF5 is not built in")
        return
    fields = ("picture=picture.npy", "row=row.npy", "number=number.npy")
    run(REIGEN, "data", "pack", SCRATCH / "measured.source.tar", SCRATCH / "measured.h5", "--fields", *fields)
    for n in RANKS:
        run(BUILD / "two_inputs_hdf5", "-n", n, "--data.path", SCRATCH / "measured.h5", "--run.dir", SCRATCH / f"measured_{n}")
    require_equal("two_inputs_hdf5", [losses_of_run(SCRATCH / f"measured_{n}") for n in RANKS])


def dcgan():
    """Two optimizers whose steps the task makes."""
    directory = SCRATCH / "dcgan"
    run(BUILD / "dcgan", "-n", 2, "--run.dir", directory, "--model.width", 4, "--train.max_steps", 6)
    lines = lines_of(directory)
    if len(lines) < 6 or not {"lr/generator", "lr/discriminator", "loss_of_generator"} <= set(lines[0]):
        sys.exit(f"dcgan lacks figures of its own: {lines}")
    digits = SCRATCH / "digits"  # MNIST's files: a header, then a byte for each pixel or label
    digits.mkdir()
    draw = random.Random(2)
    pixels = bytes(draw.randrange(256) for _ in range(128 * 28 * 28))
    (digits / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, 128, 28, 28) + pixels)
    (digits / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 128) + bytes(i % 10 for i in range(128)))
    said = run(BUILD / "dcgan", "--data.path", digits, "--run.dir", SCRATCH / "dcgan_of_files", "--model.width", 4, "--train.max_steps", 1)
    if "128 samples" not in said:
        sys.exit(f"dcgan does not take the 128 digits of the folder: {said}")
    run(BUILD / "dcgan", "predict", "--run.dir", directory)
    if (directory / "predictions.safetensors").stat().st_size < 64 * 28 * 28 * 4:
        sys.exit("dcgan predict wrote too little")


shapes()
photos()
tensors()
dcgan()
for name in ("horovod_port", "own_transformer"):
    require_equal(name, [losses_in(by_launcher(n, BUILD / name)) for n in RANKS])

# On one rank, on two stages, and on two ranks that divide layers in each of two stages.
meshes = ((1, "1", "1"), (2, "1", "2"), (4, "2", "2"))
require_equal("own_pipeline", [losses_in(by_launcher(n, BUILD / "own_pipeline", tp, pp)) for n, tp, pp in meshes])

for n in RANKS:
    mean = f"{n} ranks: the last mean is {(n - 1) / 2 + 5:g}\n"
    for words in ((BUILD / "collectives",), (sys.executable, SOURCE / "collectives.py", LIBRARY)):
        printed = by_launcher(n, *words)
        if printed != mean:
            sys.exit(f"{words} printed {printed!r}, expected {mean!r}")
print("the programs of docs/your_program.md and docs/data.md give the same on 1, 2 and 3 ranks")
