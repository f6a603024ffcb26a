"""Runs SentEval's own engine beside the evaluator here, on the same files with the same vectors.

    git clone https://github.com/facebookresearch/SentEval
    python scripts/senteval_files.py SentEval/data complete    # for tasks whose files are missing
    python scripts/official_senteval.py SentEval complete --tasks STS12 TREC -o found.json

It prints a row for each task: the scores, how many predictions differ, and the seconds of both.
Each sentence is embedded once, by `--encoder`, and both look its vector up.

No file of the clone is changed; `senteval_today.py` has what is put in place of some names.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.model_selection import StratifiedKFold

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from senteval_today import patched

from declutr.evaluation.classifiers.cross_validation import NESTED_SEED
from declutr.evaluation.suite import all_tasks, chosen
from declutr.evaluation.task import PROTOCOLS, Protocol, Task
from declutr.inference.official_protocols import senteval_functions
from declutr.inference.sources import open_encoder

THEIR_NAMES = {
    "SICK-R": "SICKRelatedness",
    "SICK-E": "SICKEntailment",
    "STS-B": "STSBenchmark",
    "COCO": "ImageCaptionRetrieval",
}
"""The names of tasks in the engine where they differ."""
ENGINE_BATCH = 128


class Recorded:
    """What the engine predicts, which its results do not have."""

    def __init__(self) -> None:
        self.cosines: list[float] = []
        self._last: tuple | None = None
        self._finals: list[tuple] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record cosines, and the classifiers that are tested."""
        from senteval import sts
        from senteval.tools.classifier import MLP

        fit, score, cosine = MLP.fit, MLP.score, sts.cosine

        def watched_fit(model: Any, *arguments: Any, **options: Any) -> float:
            model.is_final = "validation_split" in options
            return fit(model, *arguments, **options)

        def watched_score(model: Any, features: Any, labels: Any) -> float:
            if isinstance(features, np.ndarray):  # within `fit` they are tensors
                self._last = model, features
                self._finals += [self._last] if model.is_final else []
            return score(model, features, labels)

        def watched_cosine(first: np.ndarray, second: np.ndarray) -> float:
            self.cosines.append(float(np.nan_to_num(cosine(first, second))))
            return cosine(first, second)

        with (
            patch.object(MLP, "fit", watched_fit),
            patch.object(MLP, "score", watched_score),
            patch.object(sts, "cosine", watched_cosine),
        ):
            yield

    def classes(self) -> list[np.ndarray]:
        """Return the predicted classes of each tested fold, or of the test split."""
        tested = self._finals or ([self._last] if self._last else [])
        return [model.predict(features).reshape(-1).astype(int) for model, features in tested]


def engine_settings(protocol: Protocol, data: Path) -> dict[str, Any]:
    """Return the settings of the engine that a protocol stands for."""
    classifier = {
        "nhid": protocol.hidden,
        "optim": protocol.optimizer,
        "batch_size": protocol.batch_size,
        "tenacity": protocol.tenacity,
        "epoch_size": protocol.epoch_size,
    }
    return {
        "task_path": str(data),
        "usepytorch": True,
        "kfold": protocol.kfold,
        "batch_size": ENGINE_BATCH,
        "seed": protocol.seed,
        "classifier": classifier,
    }


class Vectors(dict[str, np.ndarray]):
    """The vectors of sentences, each of which is embedded once.

    The engine reads some files as Latin-1 whatever they are. A sentence that it has so misread gets
    the vector of the sentence as it is in the file, so that only the protocols are compared.
    """

    def __init__(self, encode: Callable[[list[str]], np.ndarray]) -> None:
        super().__init__()
        self._encode = encode

    def add(self, texts: Iterable[str]) -> int:
        """Embed the texts that are new, and return how many there were."""
        new = [text for text in dict.fromkeys(texts) if text not in self]
        if new:
            self.update(zip(new, np.asarray(self._encode(new), dtype=np.float32), strict=True))
        return len(new)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self[text] for text in texts])

    def meant(self, text: str) -> str:
        """Return the text whose misreading this is, or the text itself."""
        try:
            read = text.encode("latin-1").decode("utf-8")
        except UnicodeError:
            return text
        return read if text not in self and read in self else text


def differences(task: Task, ours: dict[str, Any], theirs: Any, recorded: Recorded) -> str:
    """Return how many predictions differ, of how many; or how far they are from each other."""
    if "accuracy" in ours:
        items = ours["accuracy"].items
        found = recorded.classes()
        if len(found) > 1:
            folds = StratifiedKFold(len(found), shuffle=True, random_state=NESTED_SEED)
            tested = [rows for _, rows in folds.split(items["gold"], items["gold"])]
            order = np.argsort(np.concatenate(tested))
            found = [np.concatenate(found)[order]]
        unequal = int((found[0] != items["predicted"]).sum())
        return f"{unequal} of {len(items['gold'])}"
    if "trained Pearson" in ours:
        order = task._splits["test"].order  # type: ignore[attr-defined]
        gaps = np.abs(ours["trained Pearson"].items["predicted"][order] - theirs["yhat"])
    elif "mean_recall" in ours:
        return ""
    else:
        mine = ours["all Pearson"].items["predicted"]
        gaps = np.abs(np.sort(mine) - np.sort(recorded.cosines))
    return f"at most {gaps.max():.1g} apart, of {len(gaps)}"


def their_scores(theirs: Any) -> dict[str, float]:
    """Return the engine's scores under the names that they have here, in percent."""
    if "all" in theirs:
        kinds = ("pearson", "spearman")
        return {
            f"{m} {k.title()}": 100 * theirs["all"][k][m] for m in ("mean", "wmean") for k in kinds
        }
    if "pearson" in theirs:
        found = {f"trained {k.title()}": 100 * theirs[k] for k in ("pearson", "spearman")}
        return found | {"trained Pearson dev": 100 * theirs["devpearson"]}
    if isinstance(theirs["acc"], list):
        ways = zip(("image_to_text", "text_to_image"), theirs["acc"], strict=True)
        return {
            f"{way}_r{k}": value
            for way, row in ways
            for k, value in zip((1, 5, 10), row[:3], strict=True)
        }
    found = {"accuracy": theirs["acc"], "dev_accuracy": theirs["devacc"]}
    return found | ({"f1": theirs["f1"]} if "f1" in theirs else {})


def compare(task: Task, protocol: Protocol, data: Path, encoder: Callable) -> dict[str, Any]:
    """Run both on a task."""
    from senteval.engine import SE

    vectors = Vectors(encoder)
    vectors.add(task.sentences())
    otherwise = 0

    def answered(texts: list[str]) -> np.ndarray:
        nonlocal otherwise
        meant = [vectors.meant(text) for text in texts]
        otherwise += vectors.add(meant)
        return vectors(meant)

    start = time.perf_counter()
    ours = {score.name: score for score in task.scores(vectors)}
    middle = time.perf_counter()
    recorded = Recorded()
    prepare, batcher = senteval_functions(answered)
    with patched(), recorded.watching():
        begin = time.perf_counter()
        engine = SE(engine_settings(protocol, data), batcher, prepare)
        theirs = engine.eval(THEIR_NAMES.get(task.name, task.name))
        end = time.perf_counter()
        unequal = differences(task, ours, theirs, recorded)
    scores = their_scores(theirs)
    return {
        "task": task.name,
        "protocol": f"{protocol.name}, {protocol.hidden} hidden",
        "ours": {name: ours[name].value for name in scores},
        "theirs": scores,
        "unequal": unequal,
        "seconds": [middle - start, end - begin],
        "read otherwise": otherwise,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("engine", type=Path, help="a clone of SentEval")
    parser.add_argument("data", type=Path, help="a folder with downstream/ and probing/")
    parser.add_argument("--tasks", nargs="+", help="names or patterns; all by default")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="prototyping")
    parser.add_argument("--hidden", type=int, default=0)
    parser.add_argument("--encoder", default="random:300", help="as of evaluate-embeddings")
    parser.add_argument("-o", "--output", type=Path, help="a file that gets a JSON line a task")
    args = parser.parse_args()
    sys.path.insert(0, str(args.engine))
    protocol = replace(PROTOCOLS[args.protocol], hidden=args.hidden)
    groups = ("downstream", "sts", "probing")
    tasks = [task for task in all_tasks(args.data, protocol) if task.group in groups]
    encoder = open_encoder(args.encoder, device="cpu")
    for task in chosen(tasks, args.tasks) if args.tasks else tasks:
        found = compare(task, protocol, args.data, encoder)
        for name, value in found["ours"].items():
            theirs = found["theirs"][name]
            print(f"| {task.name}, {name} | {theirs:.3f} | {value:.3f} | {found['unequal']} |")
        print(found["protocol"], found["seconds"], found["read otherwise"], flush=True)
        if args.output:
            with args.output.open("a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
