"""The peers of scripts/bench/picture_peers: a loader of another project that prepares photos for training.

    PYTHON picture_loader.py torchvision|mlx-data|dali FOLDER WORKERS

Prints "ready", or "missing: REASON" if the module cannot be imported. Then for each line "BEGIN COUNT" of stdin it takes COUNT photos in batches
and prints photos per second, and how many photos it has taken in all: loaders prepare batches in advance, so those that were waiting are taken first and
do not count for the speed. BEGIN is not used.
The work is a random crop resized to 224 x 224, a flip, and normalised planes of fp32 in batches of 32.
"""
import sys
import time
from pathlib import Path

BATCH, SIZE = 32, 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def torchvision_batches(folder, workers):
    import torch
    import torchvision
    from torchvision import transforms

    class Endless(torch.utils.data.Sampler):
        def __init__(self, size):
            self.size = size

        def __iter__(self):
            while True:
                yield from torch.randperm(self.size).tolist()

    steps = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])
    data = torchvision.datasets.ImageFolder(folder, steps)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=Endless(len(data)), num_workers=workers, worker_init_fn=lambda _: torch.set_num_threads(1))
    for pictures, _ in loader:
        yield pictures.shape
    sys.exit("the sampler has no end")


def mlx_batches(folder, workers):
    import mlx.data
    import numpy
    scale = (1 / (255 * numpy.array(DEVIATION))).astype(numpy.float32).reshape(3, 1, 1)
    shift = (numpy.array(MEAN) / numpy.array(DEVIATION)).astype(numpy.float32).reshape(3, 1, 1)

    def planes(picture):
        result = picture.transpose(2, 0, 1).astype(numpy.float32, order="C")
        result *= scale
        result -= shift
        return result

    files = [{"image": str(path).encode()} for path in photos(folder)]
    while True:
        stream = mlx.data.buffer_from_vector(files * 100).shuffle().to_stream().load_image("image").image_random_area_crop("image", (0.08, 1.0), (3 / 4, 4 / 3))
        stream = stream.image_resize("image", SIZE, SIZE).image_random_h_flip("image", 0.5).key_transform("image", planes)
        for batch in stream.batch(BATCH).prefetch(2 * workers, workers):
            yield batch["image"].shape


def dali_batches(folder, workers):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None)
    def pipeline():
        files, labels = fn.readers.file(files=[str(path) for path in photos(folder)], random_shuffle=True)
        pictures = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, random_area=(0.08, 1.0), random_aspect_ratio=(3 / 4, 4 / 3))
        pictures = fn.resize(pictures, resize_x=SIZE, resize_y=SIZE)
        pictures = fn.crop_mirror_normalize(pictures, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(), mean=[255 * x for x in MEAN], std=[255 * x for x in DEVIATION])
        return pictures, labels

    made = pipeline()
    made.build()
    while True:
        pictures, _ = made.run()
        yield (len(pictures), *pictures.at(0).shape)


def photos(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))


def main():
    name, folder, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    batches = {"torchvision": torchvision_batches, "mlx-data": mlx_batches, "dali": dali_batches}[name](folder, workers)
    try:
        shape = tuple(next(batches))
    except ImportError as error:
        print(f"missing: {error}", flush=True)
        return
    if shape != (BATCH, 3, SIZE, SIZE):
        sys.exit(f"batches have the shape {shape}")
    print("ready", flush=True)
    for line in sys.stdin:
        wanted = -(-int(line.split()[1]) // BATCH)
        waiting = 2 * workers + 3
        for _ in range(waiting):
            next(batches)
        begin = time.perf_counter()
        for _ in range(wanted):
            next(batches)
        seconds = time.perf_counter() - begin
        print(wanted * BATCH / seconds, (waiting + wanted) * BATCH, flush=True)


if __name__ == "__main__":
    main()
