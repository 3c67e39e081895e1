"""PyTorch's side: the models, and a training of each in three ways (eager, compiled, graphs)."""
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1] / "compare"))
from torch_gpt import Gpt, names_as_theirs  # noqa: E402, F401 (names_as_theirs is for torch_gpu.py)

MODES = ("eager", "compiled", "graphs")


def compiled(function, small, **options):
    """The function, compiled for one size. A small check takes no compiler, which would take a minute on the CPU."""
    return torch.compile(function, dynamic=False, **({"backend": "eager"} if small else options))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """He et al., 2016, with the stride in the 3x3 convolutions, as torchvision's."""

    def __init__(self, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        inputs, stages = 64, []
        for stage, blocks in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            stages.append(nn.Sequential(*(Bottleneck(inputs if i == 0 else 4 * width, width,
                                                     2 if i == 0 and stage > 0 else 1) for i in range(blocks))))
            inputs = 4 * width
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def perceptron():
    """The recipe mlp with --model.layers 2 --model.dim 512. Its inputs are digits padded to 32x32."""
    return nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def gpt2_sizes(small):
    """v, d, n, h, t of the model, as in runs.gpt2()."""
    return {"v": 64, "d": 32, "n": 2, "h": 2, "t": 32} if small else {"v": 50304, "d": 768, "n": 12, "h": 12, "t": 1024}


def model_and_batch(name, batch, device, small):
    """The model, and one batch of made-up samples on the device."""
    if name == "gpt2":
        sizes = gpt2_sizes(small)
        tokens = torch.randint(sizes["v"], (2, batch, sizes["t"]), device=device)
        return Gpt(**sizes).to(device), tokens[0], tokens[1]
    if name == "resnet50":
        side = 32 if small else 224
        images = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
        labels = torch.randint(1000, (batch,), device=device)
        return ResNet50().to(device, memory_format=torch.channels_last), images, labels
    if name == "mlp":
        rows, labels = torch.randn(batch, 1024, device=device), torch.randint(10, (batch,), device=device)
        return perceptron().to(device), rows, labels
    raise ValueError(f"there is no model {name}: gpt2, resnet50, mlp")


class Training:
    """A model, its optimizer and one batch. All modes train the same weights."""

    def __init__(self, name, batch, device, small, wrap=None):
        """`wrap` makes another module of the model, such as DistributedDataParallel."""
        torch.manual_seed(0)
        model, self.x, self.y = model_and_batch(name, batch, device, small)
        self.model, self.batch = model if wrap is None else wrap(model), batch
        self.device, self.small = torch.device(device), small
        self.parameters = list(model.parameters())
        self.in_bf16 = name != "mlp"
        self.clip = 1.0 if name == "gpt2" else None
        if name == "resnet50":
            self.optimizer = torch.optim.SGD(self.parameters, lr=0.1, momentum=0.9, fused=True)
        else:
            self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)
        self.losses = {"eager": self.loss}

    def loss(self, x, y):
        return F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())

    def loss_in(self, mode):
        if mode not in MODES:
            raise ValueError(f"there is no mode {mode}: {', '.join(MODES)}")
        if mode not in self.losses:
            options = {"mode": "reduce-overhead"} if mode == "graphs" else {}
            self.losses[mode] = compiled(self.loss, self.small, **options)
        return self.losses[mode]

    def step(self, mode):
        loss_of = self.loss_in(mode)
        if mode == "graphs":
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.in_bf16):
            loss = loss_of(self.x, self.y)
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss
