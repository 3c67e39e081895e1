"""Reads files of weights (safetensors) without other libraries, and compares them."""
import array
import json
import math
import struct

# Statistics of batches are those of rank 0, so they depend on the number of ranks.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
CODES = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "U8": "B"}


def read(path):
    """name -> (type, shape, bytes) of all tensors of the file."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        found = {}
        for name, about in header.items():
            if name == "__metadata__":
                continue
            first, last = about["data_offsets"]
            file.seek(8 + length + first)
            found[name] = (about["dtype"], about["shape"], file.read(last - first))
    return found


def numbers(kind, data):
    if kind == "BF16":  # the upper half of a float
        halves = array.array("H", data)
        return array.array("f", b"".join(struct.pack("<I", half << 16) for half in halves))
    return array.array(CODES[kind], data)


def apart(mine, theirs, leave_out=()):
    """The largest difference of two files' numbers. A difference of numbers above 1 is relative to their size."""
    one, other = read(mine), read(theirs)
    if one.keys() != other.keys():
        return math.inf
    largest = 0.0
    for name, (kind, shape, data) in one.items():
        if name.rsplit(".", 1)[-1] in leave_out:
            continue
        if (kind, shape) != other[name][:2]:
            return math.inf
        if data == other[name][2]:
            continue
        left, right = numbers(kind, data), numbers(kind, other[name][2])
        if not math.isfinite(sum(left)) or not math.isfinite(sum(right)):
            return math.inf
        largest = max(largest, max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(left, right)))
    return largest


def same_bits(mine, theirs):
    return read(mine) == read(theirs)
