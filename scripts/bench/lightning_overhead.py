"""The training of bench/trainer_overhead.cc by Lightning and by a bare loop of PyTorch. Prints processor time and wall time of a step.

    PYTHON lightning_overhead.py lightning|bare mnist|mlp|small STEPS FOLDER

Lightning writes TensorBoard and CSV, keeps the three best checkpoints, may stop early, and logs five names in each step.
"""
import logging
import resource
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WARM_UP = 20


def made(what):
    """The model and its data."""
    torch.manual_seed(0)
    if what == "mnist":
        model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
        shape, count = (1, 28, 28), 20000
    elif what == "mlp":
        layers = [part for i in range(8) for part in (nn.Linear(1024, 1024), nn.ReLU())]
        model = nn.Sequential(*layers, nn.Linear(1024, 10))
        shape, count = (1024,), 20000
    else:
        model, shape, count = nn.Linear(16, 4), (16,), 64 * 5000
    classes = 4 if what == "small" else 10
    return model, TensorDataset(torch.rand(count, *shape), torch.randint(0, classes, (count,)))


class Measure:
    def __init__(self, steps):
        self.steps, self.times = steps, {}

    def note(self, step):
        if step in (WARM_UP, self.steps):
            used = resource.getrusage(resource.RUSAGE_SELF)
            self.times[step] = used.ru_utime + used.ru_stime, time.monotonic()

    def print(self):
        begin, end = self.times[WARM_UP], self.times[self.steps]
        print(*(f"{(b - a) / (self.steps - WARM_UP):.9f}" for a, b in zip(begin, end)))


def bare(model, data, measure):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, total = 0, 0.0
    while step < measure.steps:
        for inputs, targets in DataLoader(data, batch_size=64, shuffle=True):
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            measure.note(step)
            if step == measure.steps:
                break


def by_lightning(model, data, measure, folder):
    import lightning
    from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model

        def training_step(self, batch, _):
            inputs, targets = batch
            loss = F.cross_entropy(self.net(inputs), targets)
            for name, value in (("training_loss", loss), ("rows", float(len(inputs))), ("one", 1.0), ("two", 2.0), ("largest", 3.0)):
                self.log(name, value)
            return loss

        def validation_step(self, batch, _):
            self.log("test_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Measuring(Callback):
        def on_train_batch_end(self, trainer, *_):
            measure.note(trainer.global_step)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=measure.steps, log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, limit_val_batches=10, logger=[TensorBoardLogger(folder), CSVLogger(folder)], default_root_dir=folder,
        callbacks=[Measuring(), ModelCheckpoint(dirpath=folder, monitor="test_loss", save_top_k=3), EarlyStopping("test_loss", patience=1000, check_on_train_epoch_end=False)])
    trainer.fit(Module(), DataLoader(data, batch_size=64, shuffle=True), DataLoader(TensorDataset(*data[:640]), batch_size=64))


def main():
    way, what, steps, folder = sys.argv[1:5]
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # threads that wait would count as work
    model, data = made(what)
    measure = Measure(int(steps))
    if way == "bare":
        bare(model, data, measure)
    else:
        by_lightning(model, data, measure, folder)
    measure.print()


if __name__ == "__main__":
    main()
