#!/usr/bin/env bash
# Build sdist and wheel, and try the wheel as somebody does who has nothing but it: in a new
# environment, in a folder outside the clone, from `declutr setup` to a training and its embeddings.
#
#   scripts/check_wheel.sh [DIST]    where sdist and wheel are built (default dist)
#
#   PYTHON=…   the interpreter to build with, and to make the environment with (default python3)
#   TORCH=…    the torch for the environment (default torch==2.13.0)
#   KEEP=1     leave the folder of the trial where it is, and say where
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} TORCH=${TORCH:-torch==2.13.0}
PYTHON=$(realpath -s "$(command -v "$PYTHON")")
mkdir -p "${1:-dist}"
DIST=$(cd "${1:-dist}" && pwd)
WORK=$(mktemp -d)
if [ -z "${KEEP:-}" ]; then trap 'rm -rf "$WORK"' EXIT; else echo "The trial is in $WORK."; fi
say() { printf '\n== %s\n' "$*"; }

say "tools to build with"
"$PYTHON" -m venv "$WORK/tools"
"$WORK/tools/bin/python" -m pip install --quiet build twine

say "sdist, and the wheel that is built from it"
rm -f "$DIST"/declutr-*
"$WORK/tools/bin/python" -m build --outdir "$DIST" .
"$WORK/tools/bin/python" -m twine check "$DIST"/declutr-*
WHEEL=$(ls "$DIST"/declutr-*.whl)

say "a new environment with $(basename "$WHEEL") and nothing of the clone"
"$PYTHON" -m venv "$WORK/env"
unset PYTHONPATH
export PATH=$WORK/env/bin:$PATH HF_HUB_OFFLINE=1 DECLUTR_CACHE=$WORK/cache
mkdir "$WORK/elsewhere"
cd "$WORK/elsewhere"
python -m pip install --quiet $TORCH  # in words: it may come with an index
python -m pip install --quiet "$WHEEL"

say "without AllenNLP, declutr says what to do"
declutr --help > /dev/null
declutr --version
if declutr train recipe.jsonnet 2> told; then echo "This must fail." >&2; exit 1; fi
cat told
[ "$(wc -l < told)" = 1 ] && grep -q '`declutr setup`' told
if declutr doctor --offline > told; then cat told; echo "This must fail." >&2; exit 1; fi
grep -A1 'error    allennlp' told

say "declutr setup, twice, and declutr doctor"
declutr setup --dry-run
declutr setup
declutr setup | grep 'nothing to do'
declutr doctor --offline

say "a tiny training from the wheel, and its embeddings"
python - <<'PYTHON'
import json
import random
from pathlib import Path

import declutr
from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

assert "site-packages" in declutr.__file__, declutr.__file__
rng = random.Random(0)
words = ["".join(rng.choices("kamitulosanovepi", k=5)) for _ in range(300)]
texts = [" ".join(rng.choices(words, k=200)) for _ in range(24)]
Path("texts.txt").write_text("\n".join(texts) + "\n")
tokenizer = train_tokenizer(texts, 400, max_length=128)
make_checkpoint(Path("tiny"), tokenizer, layers=2, hidden_size=32, heads=2, max_length=128)
transformer = {"type": "pretrained_transformer", "model_name": "tiny"}
embedder = {"type": "mlm", "token_embedders": {"tokens": {**transformer, "type": "pretrained_transformer_mlm"}}}
spans = {"num_anchors": 2, "num_positives": 2, "max_span_len": 24, "min_span_len": 8}
recipe = {
    "dataset_reader": {"type": "declutr", **spans, "tokenizer": transformer, "token_indexers": {"tokens": transformer}},
    "vocabulary": {"type": "empty"},
    "train_data_path": "texts.txt",
    "model": {"type": "declutr", "text_field_embedder": embedder, "loss": {"type": "nt_xent"}},
    "data_loader": {"type": "declutr", "batch_size": 8, "shuffle": True},
    "trainer": {"optimizer": {"type": "huggingface_adamw", "lr": 1e-2}, "num_epochs": 1, "cuda_device": -1, "run_confidence_checks": False},
}
Path("recipe.json").write_text(json.dumps(recipe))
PYTHON
declutr train recipe.json -s run > train.log 2>&1 || { tail -30 train.log; exit 1; }
declutr embed run/model.tar.gz texts.txt -o embeddings > embed.log 2>&1 || { tail -30 embed.log; exit 1; }
python - <<'PYTHON'
from declutr import Encoder
from declutr.inference.bulk import StoredEmbeddings

stored = StoredEmbeddings("embeddings")
texts = open("texts.txt").read().splitlines()
vectors = Encoder("run", device="cpu")(texts)
assert len(stored) == len(texts) == 24 and vectors.shape == (24, 32), vectors.shape
assert abs(vectors - stored[:24]).max() < 1e-4
print("24 texts, and their embeddings are the same by the command and in Python.")
PYTHON
declutr cache list
declutr cache prune --all
python -m pip uninstall --quiet --yes declutr
[ -z "$(find "$WORK/env/lib" -name 'declutr*')" ] || { echo "pip uninstall left something." >&2; exit 1; }
say "$(basename "$WHEEL") is good"
