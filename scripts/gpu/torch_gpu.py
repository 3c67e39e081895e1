#!/usr/bin/env python3
"""PyTorch's side of scripts/gpu_check: measures PyTorch, and prints one line of JSON for each measurement.

  torch_gpu.py [--device cuda|cpu|auto] [--small] DO [key=value ...]
    about                                              versions, and the memory that is reserved
    train model=gpt2 mode=compiled batch=16 seconds=1  samples per second; models: gpt2, resnet50, mlp; modes: eager,
                                                       compiled, graphs. seconds=0 warms up, and tells the memory
    kernel name="gelu, GPT-2"                          microseconds of the compiled expression
    adamw kind=fp32                                    microseconds of a step of the fused AdamW; or kind=masters
    curve run=FOLDER text=FOLDER order=FILE decay=0.1 betas=[0.9,0.95] clip=1.0
                                                       trains GPT-2 with the initial weights, rates and batches of a run
                                                       of reigen-train, and prints the losses
    warm model=gpt2 batch=16 [kernels=true]            compiles, so that later processes find the result in the cache
    serve                                              reads requests from standard input, a JSON object a line

With RANK and WORLD_SIZE in the environment the models of `train` are wrapped by DistributedDataParallel over Gloo. The
ranks meet in the file REIGEN_CHECK_MEETING. --small takes small sizes, for tests on a CPU. An error is a line with the
key "error", and `serve` goes on after it.
"""
import argparse
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # so that no file of this folder hides a module of Python
import torch  # noqa: E402

from gpu import torch_kernels, weights  # noqa: E402
from gpu.torch_models import Gpt, Training, compiled, gpt2_sizes, names_as_theirs  # noqa: E402

STEPS_BEFORE = 3
RUNS = 20


class Device:
    def __init__(self, name):
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        self.name, self.is_gpu = name, name == "cuda"

    def wait(self):
        if self.is_gpu:
            torch.cuda.synchronize()

    def reserved(self):
        return torch.cuda.memory_reserved() if self.is_gpu else 0

    def forget_peak(self):
        if self.is_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self):
        return torch.cuda.max_memory_reserved() if self.is_gpu else 0

    def microseconds(self, work):
        """The median of 20 runs, after three that warm up."""
        times = []
        for run in range(STEPS_BEFORE + RUNS):
            if self.is_gpu:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                work()
                end.record()
                end.synchronize()
                taken = begin.elapsed_time(end) * 1e3
            else:
                start = time.perf_counter()
                work()
                taken = (time.perf_counter() - start) * 1e6
            if run >= STEPS_BEFORE:
                times.append(taken)
        return statistics.median(times)


class Server:
    def __init__(self, device, small):
        self.device, self.small = Device(device), small
        self.trainings, self.expressions = {}, {}
        self.ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if self.ranks > 1:
            torch.distributed.init_process_group("gloo", init_method="file://" + os.environ["REIGEN_CHECK_MEETING"],
                                                 rank=int(os.environ["RANK"]), world_size=self.ranks)

    def answer(self, request):
        request = dict(request)
        function = getattr(self, "do_" + str(request.pop("do", "")), None)
        if function is None:
            return {"error": "there is no such request"}
        try:
            return function(**request)
        except Exception as error:  # also a lack of memory: later requests may fit
            self.trainings.clear()
            return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}

    def do_about(self):
        torch.zeros(64, 64, device=self.device.name) @ torch.zeros(64, 64, device=self.device.name)
        self.device.wait()
        return {"torch": torch.__version__, "device": self.device.name, "reserved": self.device.reserved()}

    def do_forget(self):
        self.trainings.clear()
        torch._dynamo.reset()
        gc.collect()
        self.device.forget_peak()
        return {"reserved": self.device.reserved()}

    def training(self, model, batch):
        if (model, batch) not in self.trainings:
            wrap = None
            if self.ranks > 1:
                ids = [torch.cuda.current_device()] if self.device.is_gpu else None
                wrap = lambda module: torch.nn.parallel.DistributedDataParallel(module, device_ids=ids)
            self.trainings[model, batch] = Training(model, batch, self.device.name, self.small, wrap)
        return self.trainings[model, batch]

    def do_train(self, model, mode, batch, seconds=1.0, steps=0):
        training = self.training(model, batch)
        if seconds == 0:
            training.step(mode)  # compiles
            self.device.wait()
            gc.collect()
            self.device.forget_peak()
        for _ in range(STEPS_BEFORE):
            training.step(mode)
        self.device.wait()
        begin = time.perf_counter()
        training.step(mode)
        self.device.wait()
        each = time.perf_counter() - begin
        steps = steps or max(2, round(seconds / each))
        begin = time.perf_counter()
        for _ in range(steps):
            training.step(mode)
        self.device.wait()
        taken = (time.perf_counter() - begin) / steps
        return {"model": model, "mode": mode, "batch": batch, "steps": steps, "step_ms": taken * 1e3,
                "samples_per_s": batch / taken, "peak_reserved": self.device.peak()}

    def do_kernel(self, name):
        if name not in self.expressions:
            self.expressions[name] = compiled(torch_kernels.expression(name, "cpu", True)[0], self.small)
        _, arguments = torch_kernels.expression(name, self.device.name, self.small)
        with torch.no_grad():
            taken = self.device.microseconds(lambda: self.expressions[name](*arguments))
        del arguments
        self.device.forget_peak()
        return {"name": name, "us": taken}

    def do_adamw(self, kind):
        taken = self.device.microseconds(torch_kernels.adamw(kind, self.device.name, self.small))
        self.device.forget_peak()
        return {"kind": kind, "us": taken}

    def do_warm(self, model, batch, kernels=False):
        for mode in ("graphs",) if model == "mlp" else ("compiled",):
            self.do_train(model, mode, batch, seconds=0)
        for name in torch_kernels.NAMES if kernels else ():
            self.do_kernel(name)
        return {"warm": model}

    def do_curve(self, run, text, order, decay, betas, clip):
        sizes = gpt2_sizes(self.small)
        model = Gpt(**sizes).to(self.device.name)
        model.load_state_dict(weights_of(Path(run) / "initial.safetensors"), strict=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1, betas=tuple(betas), weight_decay=decay, fused=True)
        lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
        rates = [line["lr"] for line in lines if "loss" in line]
        tokens = tokens_of(Path(text)).to(self.device.name)
        losses = []
        for rate, indices in zip(rates, Path(order).read_text().splitlines()):
            for group in optimizer.param_groups:
                group["lr"] = rate
            x, y = windows(tokens, [int(index) for index in indices.split()], sizes["t"])
            with torch.autocast(self.device.name, torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten(), ignore_index=-100)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        return {"losses": torch.stack(losses).tolist()}


def weights_of(path):
    """The weights of reigen-train, under the names that Gpt has."""
    kinds = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16}
    return names_as_theirs({name: torch.frombuffer(bytearray(data), dtype=kinds[kind]).view(shape)
                            for name, (kind, shape, data) in weights.read(path).items()})


def tokens_of(folder):
    """The text's bytes as reigen-train numbers them: by their places among all bytes of both texts."""
    training, testing = ((folder / name).read_bytes() for name in ("train.txt", "test.txt"))
    place = {byte: number for number, byte in enumerate(sorted(set(training) | set(testing)))}
    return torch.tensor(list(training.translate(bytes(place.get(byte, 0) for byte in range(256)))), dtype=torch.uint8)


def windows(tokens, indices, context):
    """Inputs and targets of these windows. The last window of a text is padded."""
    inputs = torch.zeros(len(indices), context, dtype=torch.int64, device=tokens.device)
    targets = torch.full_like(inputs, -100)
    for row, index in enumerate(indices):
        part = tokens[index * context:(index + 1) * context + 1].long()
        inputs[row, :len(part) - 1], targets[row, :len(part) - 1] = part[:-1], part[1:]
    return inputs, targets


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu", "auto"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("do", metavar="DO")
    parser.add_argument("values", nargs="*", metavar="key=value")
    words = parser.parse_args()
    try:
        server = Server(words.device, words.small)
    except Exception as error:
        server, reason = None, f"{type(error).__name__}: {error}"
    answer = server.answer if server else lambda _: {"error": reason}
    if words.do == "serve":
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), flush=True)
    else:
        values = dict(value.partition("=")[::2] for value in words.values)
        request = {"do": words.do, **{key: value_of(value) for key, value in values.items()}}
        print(json.dumps(answer(request)), flush=True)


if __name__ == "__main__":
    main()
