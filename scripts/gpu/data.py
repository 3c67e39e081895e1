"""Small data of each recipe's form. With them a run reads and validates little."""
import random
import struct
import zlib


def digits(folder, training, testing):
    """MNIST's four files: noise with a bright square, whose place says the class."""
    folder.mkdir()
    dice = random.Random(1)
    for name, count in (("train", training), ("t10k", testing)):
        labels = bytes(i % 10 for i in range(count))
        noise = dice.randbytes(28 * 28 * 64)
        pixels = bytearray()
        for i, label in enumerate(labels):
            image = bytearray(noise[28 * 28 * (i % 64):28 * 28 * (i % 64 + 1)])
            top, left = 4 + 12 * (label // 5), 5 * (label % 5)
            for row in range(top, top + 8):
                image[28 * row + left:28 * row + left + 8] = b"\xff" * 8
            image[i % 784] = i // 784 % 256  # so that no two images are the same
            pixels += image
        head = struct.pack(">IIII", 0x803, count, 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)
    return folder


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(pixels, side):
    """A PNG file of side x side colour pixels."""
    rows = b"".join(b"\0" + pixels[3 * side * row:3 * side * (row + 1)] for row in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def pictures(folder, training, testing):
    """Folders of classes with PNG files. Each class has a colour."""
    dice, side = random.Random(2), 32
    for name, count in (("train", training), ("test", testing)):
        for i in range(count):
            place = folder / name / f"class{i % 10}"
            place.mkdir(parents=True, exist_ok=True)
            colour = bytes((40 + 20 * (i % 10), 220 - 20 * (i % 10), 25 * (i % 3)))
            noise = dice.randbytes(3 * side * side)
            pixels = bytes((a + b) // 2 for a, b in zip(noise, colour * (side * side)))
            (place / f"{i}.png").write_bytes(png(pixels, side))
    return folder


def text(folder, training, testing):
    """train.txt and test.txt: so many words of a small vocabulary, the frequent ones more often."""
    folder.mkdir()
    dice = random.Random(3)
    letters = "etaoinshrdlucmfw"
    words = ["".join(dice.choices(letters, k=dice.randint(2, 9))) for _ in range(2000)]
    chances = [1 / (place + 3) for place in range(len(words))]
    for name, count in (("train", training), ("test", testing)):
        (folder / f"{name}.txt").write_text(" ".join(dice.choices(words, chances, k=count)), encoding="ascii")
    return folder
