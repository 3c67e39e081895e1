"""Trains the recipes' CNN and GPT in PyTorch, on batches of given samples."""
import gzip

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_gpt import Gpt

CONTEXT = 256


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


def read_idx(path):
    return gzip.decompress(path.read_bytes())


def mnist(folder, dtype):
    pixels = torch.frombuffer(bytearray(read_idx(folder / "train-images-idx3-ubyte.gz")[16:]), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray(read_idx(folder / "train-labels-idx1-ubyte.gz")[8:]), dtype=torch.uint8).long()
    images = pixels.view(-1, 1, 28, 28)

    def batch(indices):
        return (images[indices].to(dtype) / 255 - 0.1307) / 0.3081, labels[indices]

    return Cnn().to(dtype), batch


def gpt(text_file, dtype):
    text = text_file.read_bytes()
    vocabulary = sorted(set(text))
    tokens = torch.tensor([vocabulary.index(byte) for byte in text[:len(text) - len(text) // 10]])
    count = len(tokens) - 1

    def batch(indices):
        inputs = torch.zeros(len(indices), CONTEXT, dtype=torch.long)
        targets = torch.full((len(indices), CONTEXT), -100)
        for row, index in enumerate(indices):
            begin, size = index * CONTEXT, min(CONTEXT, count - index * CONTEXT)
            inputs[row, :size] = tokens[begin:begin + size]
            targets[row, :size] = tokens[begin + 1:begin + 1 + size]
        return inputs, targets

    return Gpt(len(vocabulary)).to(dtype), batch


def losses(model, start, rates, decay, batches):
    model.load_state_dict(start, strict=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rates[0], weight_decay=decay)
    result = []
    for rate, (inputs, targets) in zip(rates, batches, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result
