"""The Llama of scripts/bench/tensor_parallel in PyTorch, with DTensor tensor parallelism over Gloo.

  torchrun --standalone --nproc-per-node 2 scripts/bench/dtensor_llama.py [--steps N] [--warm-up N] [--threads T] [--loss-parallel]

The plan is that of pytorch/examples' fsdp_tp_example.py: every rank has its own heads, and between the divided layers its part of the
sequence. Unlike that example, the loss is a cross entropy of the next token, and gradients are set to zero in every step. All ranks
have the same tokens. --loss-parallel: the scores stay divided, and the cross entropy is PyTorch's loss_parallel. With one process there
is no plan. Prints one line of JSON.
"""
import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module

VOCAB, LAYERS, DIM, HEADS, HIDDEN, CONTEXT, BATCH, LR = 32000, 2, 256, 16, 768, 256, 8, 3e-3


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (linear(DIM, DIM) for _ in range(4))

    def forward(self, x, angles):
        q, k, v = (layer(x).unflatten(-1, (-1, DIM // HEADS)) for layer in (self.wq, self.wk, self.wv))
        q, k = (torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (-1, 2))) * angles).flatten(3) for y in (q, k))
        y = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v)), is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = linear(DIM, HIDDEN), linear(HIDDEN, DIM), linear(DIM, HIDDEN)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM, eps=1e-5), nn.RMSNorm(DIM, eps=1e-5)

    def forward(self, x, angles):
        y = x + self.attention(self.attention_norm(x), angles)
        return y + self.feed_forward(self.ffn_norm(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings, self.norm, self.output = nn.Embedding(VOCAB, DIM), nn.RMSNorm(DIM, eps=1e-5), linear(DIM, VOCAB)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        width = DIM // HEADS
        turns = torch.outer(torch.arange(CONTEXT), 10000.0 ** (-torch.arange(0, width, 2) / width))
        self.angles = torch.polar(torch.ones_like(turns), turns)[:, None]
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.angles)
        return self.output(self.norm(x))


def divide(model, mesh, divided_scores):
    scores = {"output_layouts": Shard(-1), "use_local_output": False} if divided_scores else {"output_layouts": Replicate()}
    parallelize_module(model, mesh, {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), **scores),
    })
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel(),
        })


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--loss-parallel", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    model = Llama()
    count = sum(parameter.numel() for parameter in model.parameters())
    if ranks > 1:
        dist.init_process_group("gloo")
        divide(model, init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",)), options.loss_parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, foreach=True)
    times, losses = [], []
    for step in range(options.warm_up + options.steps):
        torch.manual_seed(step)
        tokens = torch.randint(VOCAB, (BATCH, CONTEXT + 1))
        begin = time.perf_counter()
        with loss_parallel() if ranks > 1 and options.loss_parallel else contextlib.nullcontext():
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
    if int(os.environ.get("RANK", 0)) == 0:
        step = statistics.median(times[options.warm_up:])
        print(json.dumps({"ranks": ranks, "parameters": count, "step_ms": 1000 * step, "tokens_per_s": BATCH * CONTEXT / step,
                          "first_loss": losses[0], "last_loss": losses[-1]}), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
