"""Train a small network on real handwritten digits, and look inside the compiler.

The data are the 1,797 images of 8 x 8 pixels that scikit-learn ships; every fifth one
is held out. Run it with `python -m nox -s demo`, or in any environment that has the
four uopc distributions, scikit-learn and matplotlib:

    python examples/digits.py

It takes some 5 seconds, ends with a loss near 0.06 and reads at least 97 % of the
held-out digits correctly.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from tqdm import tqdm

from uopc.autodiff import gradient
from uopc.backend_c import kernel_source
from uopc.config import overriding
from uopc.kernelize import make_plan
from uopc.nn import AdamW, Linear, parameters
from uopc.runtime import default_backend, jit
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uir import to_uir
from uopc.uop import Ops

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]

BATCH = 32
LEARNING_RATE = 5e-3
NOISE = 0.2  # added to the training images: a cheap guard against learning by heart
WANTED = 0.97


class Network:
    """A multi-layer perceptron: 64 pixels, two hidden layers, 10 classes."""

    def __init__(self) -> None:
        self.layers = [Linear(64, 256), Linear(256, 64), Linear(64, 10)]

    def __call__(self, x: Tensor) -> Tensor:
        """Images in, one score per class out."""
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x).relu()
        return last(x)


def load() -> tuple[Images, Labels, Images, Labels]:
    """Training images and labels, then the held-out ones."""
    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    held_out = np.arange(len(images)) % 5 == 0
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def batches(
    images: Images, labels: Labels, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch in random order; the last partial batch is left out.

    Every batch has the same shape, so every step runs the same compiled program.
    """
    order = rng.permutation(len(images))
    for start in range(0, len(images) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        noise = NOISE * rng.standard_normal((BATCH, 64), dtype=np.float32)
        yield Tensor(images[chosen] + noise), Tensor(labels[chosen])


def train(model: Network, images: Images, labels: Labels, epochs: int) -> list[float]:
    """Train with AdamW; return the mean loss of every epoch."""
    rng = np.random.default_rng(1)
    opt = AdamW(parameters(model.layers), lr=LEARNING_RATE)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = model(x).cross_entropy(y)
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)
        return loss

    history: list[float] = []
    steps = epochs * (len(images) // BATCH)
    with tqdm(total=steps, desc="training", unit="step") as bar:
        for epoch in range(epochs):
            opt.lr = LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
            losses: list[float] = []
            for x, y in batches(images, labels, rng):
                losses.append(float(step(x, y).item()))
                bar.update()
            history.append(sum(losses) / len(losses))
            bar.set_postfix(loss=f"{history[-1]:.4f}")
            if epoch % 5 == 0 or epoch == epochs - 1:
                bar.write(f"epoch {epoch + 1:3}  loss {history[-1]:.4f}")
    return history


def accuracy(model: Network, images: Images, labels: Labels) -> float:
    """The part of the images that the model reads correctly."""
    guesses = model(Tensor(images)).numpy().argmax(1)
    return float((guesses == labels).mean())


def draw(history: list[float], path: Path) -> Path:
    """Write the loss curve as an SVG and return its absolute path."""
    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    axes.plot(range(1, len(history) + 1), history)
    axes.set(xlabel="epoch", ylabel="training loss", yscale="log", title="digits")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", bbox_inches="tight")
    return path.resolve()


def show_kernel(model: Network) -> None:
    """Print the C of the first layer: product, bias and relu in one kernel."""
    with overriding(UOPC_OPT=0):  # the plain form, for reading
        hidden = model.layers[0](Tensor(np.zeros((BATCH, 64), np.float32))).relu()
        plan, _ = make_plan([hidden.uop])
        kernel = plan.kernels[-1]
        print(
            f"\nThe first layer is kernel {kernel.name}, here without optimizations:\n"
        )
        print(kernel_source(kernel).strip())


def show_gradient() -> None:
    """Print the gradient graph of a small function."""
    x, y = buf(0, 3), buf(1, 3)
    (dx,) = gradient((x * y + x).reduce(Ops.ADD, 1), [x])
    print("\nThe gradient of sum(x * y + x) with respect to x, as .uir:\n")
    print(to_uir(dx).strip())


def main() -> int:
    """Train, measure, draw and print; 1 if the accuracy is too low."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--svg", type=Path, default=Path("digits-loss.svg"))
    options = parser.parse_args()

    backend = default_backend().name
    print(f"backend: {backend}")
    if backend != "c":
        print("*** NO C COMPILER: the slow reference backend runs instead.       ***")
        print("*** Install gcc or clang, or `pip install uopc-backend-c[zig]`.   ***")

    Tensor.manual_seed(1)
    model = Network()
    images, labels, held_images, held_labels = load()
    print(f"{len(images)} images to train on, {len(held_images)} held out")

    started = time.perf_counter()
    history = train(model, images, labels, options.epochs)
    seconds = time.perf_counter() - started
    reached = accuracy(model, held_images, held_labels)

    show_kernel(model)
    show_gradient()
    print(f"\nloss curve: {draw(history, options.svg)}")
    print(f"training:   {seconds:.1f} s on backend {backend}")
    print(f"held out:   {reached:.2%} of {len(held_images)} images read correctly")
    if reached < WANTED:
        print(f"that is less than the {WANTED:.0%} this network should reach")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
