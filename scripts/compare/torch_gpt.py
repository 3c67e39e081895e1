"""The recipes' GPT in PyTorch. Its weights have the recipe's names."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Gpt(nn.Module):
    def __init__(self, v, d=384, n=6, h=6, t=256):
        super().__init__()
        self.tok, self.pos = nn.Embedding(v, d), nn.Embedding(t, d)
        self.blocks, self.norm, self.head = nn.ModuleList(Block(d, h) for _ in range(n)), nn.LayerNorm(d), nn.Linear(d, v, bias=False)

    def forward(self, i):
        x = self.tok(i) + self.pos(torch.arange(i.shape[1], device=i.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def names_as_theirs(weights):
    for ours, theirs in (("embed.", ""), ("head.linear.", "head."), ("head.norm.", "norm.")):
        weights = {theirs + key.removeprefix(ours) if key.startswith(ours) else key: value for key, value in weights.items()}
    return weights
