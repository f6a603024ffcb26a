"""Imports point one way, and the light parts stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import declutr

PACKAGE = Path(declutr.__file__).parent

# From the ground up. A module may import from its own layer and from those before it.
LAYERS = [
    {"bridge"},
    {"sampling", "masking", "distributed", "sources", "token_store", "docstrings", "checkpoints"}
    | {"file_digests", "worker_processes", "token_budget", "packing", "heap", "checksums"}
    | {"repeatable_dropout", "whitening", "text_pieces", "bulk_embedding"}
    | {"archive_members", "sentence_transformers_folder", "dropout_rates"}
    | {"sentence_splitting", "table_rows", "text_pairs"}
    | {"text_encodings", "text_files", "delimited_rows", "earlier_reading", "text_inputs"}
    | {"embedding_layers", "synonyms", "truncation_warnings", "file_modes", "bounded_json"}
    | {"text_calls", "text_blocks", "quiet_loggers", "content_ids", "modules_from_here"}
    | {"untrusted_parts", "span_coverage", "named_files", "torch_files"}
    | {"host_copies", "whole_masks", "text_by_text_attention", "variable_length_kernels"}
    | {"_version", "cache_folder", "kernel_choices", "linear_products"}
    | {"processors", "torch_threads", "training_speed"},
    {"packed_attention", "unpadded", "text_batches"},
    {"corpus", "precision", "metrics", "evaluation", "masked_lm_head", "document_selection"},
    {"weight_decay", "linear_decay", "loss_sums", "metric_readers"},
    {"objectives", "span_fields", "collation", "text_codecs", "embedders", "text_field_masks"}
    | {"augmentations", "word_edits"},
    {"cutoff"},
    {"dataset_reader", "views", "heads", "momentum", "ngram_pooler"}
    | {"text_keys", "submodule_features", "numbered_texts"},
    {"sentence_reader", "pair_reader", "augmented_reader", "glue"} | {"image_text", "text_vae"},
    {"gradient_caching", "model_parts"},
    {"data_loader", "model", "reclaim_model"},
    {"predictor", "reclaim_predictor", "archives", "checkpointer", "sharding", "safe_archives"}
    | {"trained_configuration"},
    {"trained_texts", "undisturbed", "pretrained_parts", "metric_states"},
    {"epoch_figures", "start_validation"},
    {"callbacks", "evaluation_callback", "trainer"},
    {"components"},
    {"text_models"},
    {"encoder", "encoder_processes"},
    {"encoder_sources", "semantic_search", "export"},
    {"official_protocols"},
    {"commands"},
    {"plugin"},
    {"quickstart"},
    {"__init__", "__main__"},
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
WITHOUT_ALLENNLP = LAYERS[1] | {"packed_attention", "unpadded", "evaluation", "corpus", "metrics"}


def part(path: Path) -> str:
    """The name in `LAYERS` of a source file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Dotted names of the modules a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "declutr":
                names |= {f"declutr.{alias.name}" for alias in node.names}
            else:
                names.add(node.module)
    return names


def test_every_module_has_a_layer() -> None:
    assert {part(path) for path in PACKAGE.rglob("*.py")} == set(LAYER)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        if part(path) == "__init__":  # exports Encoder lazily
            continue
        for name in imported(path):
            if name.startswith("declutr."):
                target = name.split(".")[1]
                # The version stands in the package itself.
                if target in LAYER and LAYER[target] > LAYER[part(path)]:
                    wrong.append(f"{part(path)} imports {target}")
    assert wrong == []


def test_the_pure_parts_know_no_allennlp() -> None:
    for path in PACKAGE.rglob("*.py"):
        if part(path) in WITHOUT_ALLENNLP:
            assert not {n for n in imported(path) if n.split(".")[0] == "allennlp"}, path


def test_objectives_never_see_a_model_or_tokens() -> None:
    for path in (PACKAGE / "objectives").glob("*.py"):
        for name in imported(path):
            assert not name.startswith("transformers"), path
            if name.startswith("declutr."):
                assert name.split(".")[1] in ("objectives", "host_copies", "processors"), path


def test_only_one_module_uses_torch_distributed() -> None:
    """What processes say to each other is in one place; torch's way of splitting a model is in
    another, which says nothing itself."""
    used = {
        part(path): {name for name in imported(path) if name.startswith("torch.distributed")}
        for path in PACKAGE.rglob("*.py")
        if part(path) != "bridge"
    }
    assert {name for name, modules in used.items() if "torch.distributed" in modules} == {
        "distributed"
    }
    assert {name for name, modules in used.items() if modules} == {"distributed", "sharding"}


def test_importing_declutr_is_cheap(checkpoint: Path) -> None:
    """And a transformer is opened, and embeds, without what only training needs."""
    code = (
        "import declutr, sys; heavy = {'torch', 'allennlp', 'transformers', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        f"assert declutr.Encoder({str(checkpoint)!r}, device='cpu')(['a', 'b c']).any()\n"
        "heavy = {'allennlp', 'spacy', 'nltk', 'datasets', 'tensorboardX', 'boto3'}\n"
        "heavy |= {'pytorch_metric_learning', 'declutr.models.declutr', 'declutr.objectives'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]


def test_public_names() -> None:
    assert declutr.__all__ == ["Encoder", "__version__"]
    from declutr.inference.encoder import Encoder

    assert declutr.Encoder is Encoder
