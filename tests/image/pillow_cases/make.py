#!/usr/bin/env python3
"""Writes cases.bin.gz: resized and recoloured pictures with Pillow's pixels, for tests/image/pillow_cases_test.cc.

    pip install pillow==13.0.0 torchvision && python3 tests/image/pillow_cases/make.py

The source pictures are drawn by a formula that the test computes too. A case is, in big-endian numbers:
    u8 kind (0 resize, 1 brightness, 2 contrast, 3 saturation, 4 hue) · u16 width, height, seed of the source
    · 4 doubles (the box of a resize; amount, 0, 0, 0) · u16 width, height of the result · its red, green, blue
"""
import gzip
import struct
from pathlib import Path

import torchvision.transforms.functional as transforms
from PIL import Image

KINDS = {'resize': 0, 'brightness': 1, 'contrast': 2, 'saturation': 3, 'hue': 4}


def source(width, height, seed):
    """Bytes of a linear congruential generator; seeds below 10 draw noise, others steps from black to white."""
    state, values = seed, bytearray()
    for i in range(3 * width * height):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append(state >> 24 if seed < 10 else 255 * (i // seed % 2))
    return Image.frombytes('RGB', (width, height), bytes(values))


def case(kind, width, height, seed, numbers, result):
    return (struct.pack('>BHHH4dHH', KINDS[kind], width, height, seed, *numbers, result.width, result.height)
            + result.tobytes())


def resized(image, size, box):
    """image.resize(size, BILINEAR, box=box), along rows first. Pillow 13 may begin with the columns instead; the values differ by 1."""
    left, top, right, bottom = box
    narrow = image.resize((size[0], image.height), Image.Resampling.BILINEAR, box=(left, 0, right, image.height))
    return narrow.resize(size, Image.Resampling.BILINEAR, box=(0, top, size[0], bottom))


def resizes():
    sizes = [((7, 5), (3, 4)), ((5, 7), (12, 9)), ((40, 30), (10, 30)), ((40, 30), (40, 7)), ((1, 1), (4, 4)),
             ((64, 48), (1, 1)), ((33, 17), (32, 16)), ((33, 17), (34, 18)), ((100, 3), (9, 20)), ((3, 200), (20, 9)),
             ((50, 50), (16, 16)), ((17, 23), (16, 24)), ((300, 20), (17, 5)), ((16, 16), (16, 16)), ((2, 2), (30, 2))]
    for seed in (1, 2, 11, 30):
        for (width, height), size in sizes:
            box = (0, 0, width, height)
            result = resized(source(width, height, seed), size, box)
            yield case('resize', width, height, seed, box, result)
    for seed, box in enumerate([(3, 2, 20, 19), (0.5, 0.25, 30.75, 20.5), (10, 0, 11, 30), (0, 0, 40, 1), (39, 29, 40, 30),
                                (1.5, 2.5, 3.5, 4.5)]):
        for size in ((8, 8), (24, 5), (3, 17)):
            result = resized(source(40, 30, seed + 1), size, box)
            yield case('resize', 40, 30, seed + 1, box, result)


def colours():
    change = {'brightness': transforms.adjust_brightness, 'contrast': transforms.adjust_contrast,
              'saturation': transforms.adjust_saturation, 'hue': transforms.adjust_hue}
    for kind, function in change.items():
        amounts = (-0.5, -0.37, -0.001, 0.0, 0.1, 0.25, 0.5) if kind == 'hue' else (0.0, 0.3, 0.999, 1.0, 1.4, 2.7)
        for amount in amounts:
            for seed in (1, 2, 13):
                yield case(kind, 24, 16, seed, (amount, 0, 0, 0), function(source(24, 16, seed), amount))


path = Path(__file__).parent / 'cases.bin.gz'
path.write_bytes(gzip.compress(b''.join([*resizes(), *colours()]), 9, mtime=0))
print(path.stat().st_size, 'bytes')
