"""PyTorch's side: the expressions that Reigen's kernels compute, for torch.compile, and the fused AdamW.

Every expression reads and writes the arrays that the kernel of the same name reads and writes (cuda/model_speeds.cc).
Sums are made in fp32.
"""
import math

import torch
import torch.nn.functional as F

ROWS = 16 * 1024
COLUMNS = {"GPT-2": 768, "Llama": 4096}
CLASSES = {"GPT-2": 50304, "Llama": 128256}
HIDDEN, WIDE = 4 * 768, 14336
HEADS, HALF = 32, 64
# Rows of a picture and columns of the layers whose batch norms are measured.
LAYERS = {"ResNet-50 112x112x64": (112 * 112, 64), "ResNet-50 56x56x256": (56 * 56, 256), "ResNet-50 7x7x2048": (7 * 7, 2048)}
PICTURES = 256
PARAMETERS = 124_000_000


def norm_with_addition(x, branch, weight, bias):
    y = x + branch
    deviation, mean = torch.var_mean(y, -1, keepdim=True, correction=0)
    rstd = torch.rsqrt(deviation + 1e-5)
    return y, ((y - mean) * rstd * weight + bias).bfloat16(), mean, rstd


def norm_backward(of_output, of_sum, y, weight, mean, rstd):
    normal = (y - mean) * rstd
    g = of_output.float() * weight
    of_x = rstd * (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True)) + of_sum
    return of_x, of_x.bfloat16()


def norm_sums(of_output, y, mean, rstd):
    g = of_output.float()
    return (g * ((y - mean) * rstd)).sum(0), g.sum(0)


def batch_statistics(x, running_mean, running_var):
    variance, mean = torch.var_mean(x.float(), 0, correction=0)
    unbiased = variance * (x.shape[0] / (x.shape[0] - 1))
    return mean, torch.rsqrt(variance + 1e-5), 0.9 * running_mean + 0.1 * mean, 0.9 * running_var + 0.1 * unbiased


def batch_norm(x, residual, weight, bias, mean, rstd):
    return torch.relu((x.float() - mean) * rstd * weight + bias + residual.float()).bfloat16()


def batch_norm_sums(of_output, x, output, mean, rstd):
    g = torch.where(output > 0, of_output.float(), 0)
    return g.bfloat16(), (g * ((x.float() - mean) * rstd)).sum(0), g.sum(0)


def batch_norm_backward(of_output, x, weight, mean, rstd, of_weight, of_bias):
    normal = (x.float() - mean) * rstd
    rows = x.shape[0]
    return ((of_output.float() - of_bias / rows - normal * (of_weight / rows)) * (rstd * weight)).bfloat16()


def cross_entropy(logits, target):
    x = logits.float()
    log_sum = torch.logsumexp(x, -1, keepdim=True)
    loss = (log_sum - x.gather(1, target[:, None])).mean()
    is_target = torch.arange(x.shape[1], device=x.device)[None] == target[:, None]
    return loss, ((torch.exp(x - log_sum) - is_target.float()) / x.shape[0]).bfloat16()


def gelu(x, bias):
    return F.gelu(x.float() + bias).bfloat16()


def gelu_backward(of_output, x, bias):
    z = x.float() + bias
    slope = 0.5 * (1 + torch.erf(z * math.sqrt(0.5))) + z * torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    of_x = of_output.float() * slope
    return of_x.bfloat16(), of_x.sum(0)


def swiglu(first, second):
    return (F.silu(first.float()) * second.float()).bfloat16()


def swiglu_backward(of_output, first, second):
    a, b, g = first.float(), second.float(), of_output.float()
    s = torch.sigmoid(a)
    return (g * b * s * (1 + a * (1 - s))).bfloat16(), (g * a * s).bfloat16()


def rotary(x, cosines, sines):
    first, second = x.float().chunk(2, -1)
    c, s = cosines[None, :, None], sines[None, :, None]
    return torch.cat((first * c - second * s, second * c + first * s), -1).bfloat16()


def arrays(device, *shapes_and_types):
    return [torch.zeros(shape, dtype=kind, device=device) for shape, kind in shapes_and_types]


def expression(name, device, small):
    """The function of this name, and its arguments."""
    rows = 4 if small else ROWS
    wide, narrow, number = torch.float32, torch.bfloat16, torch.int64
    what, _, model = name.rpartition(", ")
    one = (rows, 1)
    if what in ("norm with addition", "norm backward", "norm sums"):
        columns = COLUMNS[model]
        whole = (rows, columns)
        if what == "norm with addition":
            return norm_with_addition, arrays(device, (whole, wide), (whole, narrow), (columns, wide), (columns, wide))
        if what == "norm backward":
            return norm_backward, arrays(device, (whole, narrow), (whole, wide), (whole, wide), (columns, wide),
                                         (one, wide), (one, wide))
        return norm_sums, arrays(device, (whole, narrow), (whole, wide), (one, wide), (one, wide))
    if what.startswith("batch "):
        of_picture, columns = LAYERS[model]
        whole, one = (((1 if small else PICTURES) * of_picture, columns), narrow), (columns, wide)
        if what == "batch statistics":
            return batch_statistics, arrays(device, whole, one, one)
        if what == "batch norm":
            return batch_norm, arrays(device, whole, whole, *[one] * 4)
        if what == "batch norm sums":
            return batch_norm_sums, arrays(device, whole, whole, whole, one, one)
        return batch_norm_backward, arrays(device, whole, whole, *[one] * 5)
    if what == "cross entropy":
        return cross_entropy, arrays(device, ((rows, CLASSES[model]), narrow), (rows, number))
    if name == "gelu, GPT-2":
        return gelu, arrays(device, ((rows, HIDDEN), narrow), (HIDDEN, wide))
    if name == "gelu backward, GPT-2":
        return gelu_backward, arrays(device, ((rows, HIDDEN), narrow), ((rows, HIDDEN), narrow), (HIDDEN, wide))
    if name == "swiglu, Llama":
        return swiglu, arrays(device, *[((rows, WIDE), narrow)] * 2)
    if name == "swiglu backward, Llama":
        return swiglu_backward, arrays(device, *[((rows, WIDE), narrow)] * 3)
    if name == "rotary, Llama":
        positions = min(rows, 1024)
        return rotary, arrays(device, ((rows // positions, positions, HEADS, 2 * HALF), narrow),
                              ((positions, HALF), wide), ((positions, HALF), wide))
    raise ValueError(f"there is no expression {name}")


NAMES = [f"{what}, {model}" for what in ("norm with addition", "norm backward", "norm sums", "cross entropy")
         for model in ("GPT-2", "Llama")]
NAMES += [f"{what}, {layer}" for what in ("batch statistics", "batch norm", "batch norm sums", "batch norm backward")
          for layer in LAYERS]
NAMES += ["gelu, GPT-2", "gelu backward, GPT-2", "swiglu, Llama", "swiglu backward, Llama", "rotary, Llama"]


def adamw(kind, device, small):
    """A function that makes one step of the fused AdamW over as many elements as GPT-2 124M has.

    `masters`: weights and gradients are bf16, and the optimizer has fp32 copies of the weights. PyTorch has no such
    optimizer, so the gradients are copied to fp32 before it and the weights to bf16 after it.
    """
    count = 1_000_000 if small else PARAMETERS
    weights = torch.zeros(count, device=device, requires_grad=True)
    weights.grad = torch.zeros(count, device=device)
    optimizer = torch.optim.AdamW([weights], lr=1e-3, fused=True)
    if kind == "fp32":
        return optimizer.step
    if kind != "masters":
        raise ValueError(f"there is no kind {kind}: fp32, masters")
    narrow, gradient = (torch.zeros(count, dtype=torch.bfloat16, device=device) for _ in range(2))

    def step():
        weights.grad.copy_(gradient)
        optimizer.step()
        narrow.copy_(weights.detach())
    return step
