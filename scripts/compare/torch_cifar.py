"""Trains torchvision's ResNet-18 on CIFAR-10 as a run of `reigen train resnet18` does: its first weights, its batch and its learning rates.
The run need not have ended. Batch norm takes the whole batch together; the run takes parts of model.norm_batch.

    torch_cifar.py FOLDER RUN TOLD     FOLDER: train/<class>/*.jpg and test/<class>/*.jpg; TOLD: gets the accuracy as JSON
"""
import json
import math
import re
import sys
import time
import tomllib
from pathlib import Path

import numpy
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file
from torch.nn import functional as F

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


def pictures(folder):
    classes = sorted(path.name for path in folder.iterdir())
    pixels, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).iterdir()):
            pixels.append(numpy.asarray(Image.open(path).convert("RGB")))
            labels.append(label)
    inputs = torch.from_numpy(numpy.stack(pixels)).permute(0, 3, 1, 2).contiguous()
    return inputs, torch.tensor(labels)


def normalised(inputs):
    return (inputs.float() / 255 - MEAN) / DEVIATION


def changed(inputs):
    """Padded with four black pixels, cropped and flipped at random."""
    count, line = len(inputs), torch.arange(32)
    rows = torch.randint(0, 9, (count, 1)) + line
    columns = torch.randint(0, 9, (count, 1)) + torch.where(torch.rand(count, 1) < 0.5, 31 - line, line)
    padded = F.pad(inputs, (4, 4, 4, 4)).permute(0, 2, 3, 1)
    chosen = padded[torch.arange(count).view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)]
    return normalised(chosen.permute(0, 3, 1, 2).contiguous())


def accuracy(model, inputs, targets):
    model.eval()
    with torch.no_grad():
        hits = sum(int((model(normalised(inputs[i:i + 500])).argmax(1) == targets[i:i + 500]).sum()) for i in range(0, len(inputs), 500))
    model.train()
    return hits / len(inputs)


def rates_of(run, config, steps_of_epoch):
    """The learning rate of each step: it grows in the first epoch and then follows a cosine to 0. The steps that the run has made had it too."""
    peak = config["optim"]["lr"] * config["train"]["global_batch"] / config["optim"]["base_batch"]
    warmup, steps = steps_of_epoch, steps_of_epoch * config["train"]["epochs"]
    rates = [peak * (step + 1) / warmup if step < warmup else peak * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
             for step in range(steps)]
    told = [line["lr"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in line]
    for step, (rate, other) in enumerate(zip(rates, told)):
        if not math.isclose(rate, other, rel_tol=1e-9, abs_tol=1e-15):
            sys.exit(f"step {step + 1} of the run had the learning rate {other}, and not {rate}")
    return rates


def main():
    folder, run, told = (Path(word) for word in sys.argv[1:4])
    torch.manual_seed(0)
    config = tomllib.loads((run / "config.toml").read_text())
    batch, optim = config["train"]["global_batch"], config["optim"]
    model = torchvision.models.resnet18(num_classes=10)
    weights = {re.sub("^(stem|head)\\.", "", name): value for name, value in load_file(run / "initial.safetensors").items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or any(not name.endswith("num_batches_tracked") for name in missing):
        sys.exit(f"the run's first weights do not fit: {missing}, {unexpected}")
    model.train()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    inputs, targets = pictures(folder / "train")
    tested = pictures(folder / "test")
    rates = rates_of(run, config, math.ceil(len(inputs) / batch))
    optimizer = torch.optim.SGD([{"params": matrices, "weight_decay": optim["weight_decay"]}, {"params": vectors, "weight_decay": 0}],
                                lr=rates[0], momentum=optim["momentum"], nesterov=True)
    step, begin = 0, time.monotonic()
    kept = told.with_suffix(".pt")  # the end of an epoch, from which a stopped comparison goes on
    if kept.exists():
        state = torch.load(kept)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
    while step < len(rates):
        order = torch.randperm(len(inputs))
        for at in range(0, len(inputs), batch):
            chosen = order[at:at + batch]
            for group in optimizer.param_groups:
                group["lr"] = rates[step]
            optimizer.zero_grad()
            F.cross_entropy(model(changed(inputs[chosen])), targets[chosen]).backward()
            optimizer.step()
            step += 1
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
        torch.save(state, kept.with_suffix(".new"))
        kept.with_suffix(".new").rename(kept)
        print(f"step {step}: test accuracy {100 * accuracy(model, *tested):.2f} %, {time.monotonic() - begin:.0f} s", flush=True)
    told.write_text(json.dumps({"test_accuracy": accuracy(model, *tested)}))


if __name__ == "__main__":
    main()
