"""SentEval's protocol written anew: one classifier after the other, with torch's own modules.

An oracle for tests. It draws, trains and stops as SentEval's modules do, and
shares no code with `declutr`. `scripts/official_senteval.py` runs SentEval itself.
"""

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from scipy import stats
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from declutr.evaluation.task import Protocol

PENALTIES = 1e-5, 1e-4, 1e-3, 1e-2


def fit(
    x: torch.Tensor,
    labels: np.ndarray,
    classes: int,
    train: np.ndarray,
    dev: np.ndarray | None,
    penalty: float,
    protocol: Protocol,
) -> tuple[float, nn.Module, int]:
    """Train a classifier; without `dev`, a twentieth of `train` is held out.

    # Returns

    Its accuracy, the classifier, and the number of evaluations on the development set.
    """
    draw = np.random.RandomState(protocol.seed)
    y = torch.from_numpy(labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(protocol.seed)
        if protocol.hidden:
            model: nn.Module = nn.Sequential(
                nn.Linear(x.shape[1], protocol.hidden),
                nn.Sigmoid(),
                nn.Linear(protocol.hidden, classes),
            )
        else:
            model = nn.Linear(x.shape[1], classes)
    kind = torch.optim.Adam if protocol.optimizer == "adam" else torch.optim.RMSprop
    optimizer = kind(model.parameters(), weight_decay=penalty)
    if dev is None:
        order = draw.permutation(len(train))
        held = int(0.05 * len(train))
        train, dev = train[order[held:]], train[order[:held]]
    best, kept, count, passes, looks, stop = -1.0, model, 0, 0, 0, False
    while not stop and passes <= protocol.max_epoch:
        for _ in range(protocol.epoch_size):
            order = train[draw.permutation(len(train))]
            for start in range(0, len(order), protocol.batch_size):
                batch = order[start : start + protocol.batch_size]
                optimizer.zero_grad()
                cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
        passes, looks = passes + protocol.epoch_size, looks + 1
        accuracy = float(np.mean(classes_of(model, x[dev]) == labels[dev]))
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model)
        else:
            stop = count >= protocol.tenacity
            count += 1
    return best, kept, looks


def classes_of(model: nn.Module, x: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return model(x).argmax(1).numpy()


def folds(labels: np.ndarray, k: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return StratifiedKFold(k, shuffle=True, random_state=seed).split(labels, labels)


def cross_validated(x: torch.Tensor, y: np.ndarray, classes: int, p: Protocol, seed: int) -> float:
    """Return the first penalty with the best rounded mean accuracy."""
    scores = []
    for penalty in PENALTIES:
        each = [fit(x, y, classes, *parts, penalty, p)[0] for parts in folds(y, p.kfold, seed)]
        scores.append(round(100 * np.mean(each), 2))
    return PENALTIES[np.argmax(scores)]


def nested_kfold(x: torch.Tensor, y: np.ndarray, classes: int, p: Protocol) -> np.ndarray:
    predicted = np.zeros(len(y), int)
    for train, test in folds(y, p.kfold, 1111):
        penalty = cross_validated(x[train], y[train], classes, p, 1111)
        _, model, _ = fit(x[train], y[train], classes, np.arange(len(train)), None, penalty, p)
        predicted[test] = classes_of(model, x[test])
    return predicted


def kfold(
    x: torch.Tensor, y: np.ndarray, classes: int, tests: torch.Tensor, p: Protocol
) -> np.ndarray:
    penalty = cross_validated(x, y, classes, p, p.seed)
    return classes_of(fit(x, y, classes, np.arange(len(y)), None, penalty, p)[1], tests)


def split(
    parts: Sequence[torch.Tensor],
    labels: Sequence[np.ndarray],
    classes: int,
    p: Protocol,
    penalties: Sequence[float] = PENALTIES,
) -> np.ndarray:
    x, y = torch.cat(list(parts[:2])), np.concatenate(labels[:2])
    train, dev = np.split(np.arange(len(y)), [len(labels[0])])
    found = [fit(x, y, classes, train, dev, penalty, p) for penalty in penalties]
    best = np.argmax([round(100 * accuracy, 2) for accuracy, *_ in found])
    return classes_of(found[best][1], parts[2])


def encoded(scores: np.ndarray) -> np.ndarray:
    """Return the targets of the regressor (Tai et al., 2015), as `encode_labels` of sick.py."""
    targets = np.zeros((len(scores), 5), np.float32)
    for row, score in zip(targets, scores, strict=True):
        for i in range(5):
            if i + 1 == np.floor(score) + 1:
                row[i] = score - np.floor(score)
            if i + 1 == np.floor(score):
                row[i] = np.floor(score) - score + 1
    return targets


def regressor(
    train: torch.Tensor,
    gold: np.ndarray,
    dev: torch.Tensor,
    dev_gold: np.ndarray,
    test: torch.Tensor,
    seed: int,
    max_epoch: int = 1000,
) -> np.ndarray:
    """Return the predicted scores of `test`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(train.shape[1], 5), nn.Softmax(-1))
    draw = np.random.RandomState(seed)
    optimizer = torch.optim.Adam(model.parameters())
    targets = torch.from_numpy(encoded(gold))

    def expected(model: nn.Module, features: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            return model(features).numpy() @ np.arange(1, 6)

    best, kept, misses, passes, stop = -1.0, model, 0, 0, False
    while not stop and passes <= max_epoch:
        for _ in range(50):
            order = torch.from_numpy(draw.permutation(len(gold)))
            for rows in order.split(64):
                optimizer.zero_grad()
                mse_loss(model(train[rows]), targets[rows]).backward()
                optimizer.step()
        passes += 50
        correlation = np.nan_to_num(stats.pearsonr(expected(model, dev), dev_gold)[0])
        if correlation > best:
            best, kept = correlation, copy.deepcopy(model)
        else:
            stop = misses >= 3
            misses += 1
    return expected(kept, test)


def unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.pow(2).sum(1, keepdim=True).sqrt()


def caption_ranks(
    parts: Sequence[tuple[torch.Tensor, torch.Tensor]], seed: int, width: int = 1000
) -> list[np.ndarray]:
    """Return the ranks of captions by images, and of images by captions, in the test part."""
    (images, captions), dev, test = parts
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        maps = nn.ModuleList([nn.Linear(x.shape[1], width) for x in parts[0]])
    draw = np.random.RandomState(seed)
    optimizer = torch.optim.Adam(maps.parameters())
    best, kept, misses, passes, stop = -1.0, maps, 0, 0, False
    while not stop and passes <= 20:
        order = list(draw.permutation(len(captions)))
        for start in range(0, len(order), 128):
            batch, rest = order[start : start + 128], order[:start] + order[start + 128 :]
            wrong = [draw.choice(rest, 30 * len(batch)) for _ in range(2)]
            image, wrong_image = (unit(maps[0](images[rows])) for rows in (batch, wrong[0]))
            caption, wrong_caption = (unit(maps[1](captions[rows])) for rows in (batch, wrong[1]))
            image, caption = image.repeat_interleave(30, 0), caption.repeat_interleave(30, 0)
            right = (image * caption).sum(1)
            to_captions = (0.2 - right + (image * wrong_caption).sum(1)).clamp(min=0)
            to_images = (0.2 - right + (caption * wrong_image).sum(1)).clamp(min=0)
            optimizer.zero_grad()
            (to_captions.sum() + to_images.sum()).backward()
            optimizer.step()
        passes += 1
        score = sum(float((r < k).mean()) for r in ranked(maps, *dev) for k in (1, 5, 10))
        if score > best:
            best, kept = score, copy.deepcopy(maps)
        else:
            stop = misses >= 3
            misses += 1
    return ranked(kept, *test)


def ranked(maps: nn.ModuleList, images: torch.Tensor, captions: torch.Tensor) -> list[np.ndarray]:
    with torch.no_grad():
        likeness = (unit(maps[0](images[::5])) @ unit(maps[1](captions)).T).numpy()
    of_captions = np.argsort(likeness)[:, ::-1]
    first = [min(np.where(row // 5 == i)[0]) for i, row in enumerate(of_captions)]
    of_images = np.argsort(likeness.T)[:, ::-1]
    return [
        np.array(first),
        np.array([np.where(r == i // 5)[0][0] for i, r in enumerate(of_images)]),
    ]
