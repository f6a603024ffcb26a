"""The table of registered names of this package, by base class, with the places of their classes.

Importing this module registers all names with AllenNLP. The module of a class is imported only when
its name is requested, so that an archive, a recipe or a command loads nothing that it does not use.
"""

from collections import defaultdict
from typing import Any, Optional

from allennlp.common import Registrable

from declutr.system import NamesOnDemand

# Maps the place of each base class (`module:class`) to its registered names and their places.
COMPONENTS: dict[str, dict[str, str]] = {
    "allennlp.commands.subcommand:Subcommand": {
        "embed": "declutr.commands.embed:Embed",
        "evaluate-embeddings": "declutr.commands.evaluate_embeddings:EvaluateEmbeddings",
        "export": "declutr.commands.export:Export",
        "index": "declutr.commands.index:Index",
        "sample-spans": "declutr.commands.sample_spans:SampleSpans",
        "search": "declutr.commands.search:Search",
        "split-sentences": "declutr.commands.split_sentences:SplitSentences",
        "whiten": "declutr.commands.whiten:Whiten",
    },
    "allennlp.data.data_loaders.data_loader:DataLoader": {
        "declutr": "declutr.data.data_loader:DeCLUTRDataLoader",
    },
    "allennlp.data.dataset_readers.dataset_reader:DatasetReader": {
        "augmented": "declutr.data.augmented_reader:AugmentedReader",
        "declutr": "declutr.data.span_reader:DeCLUTRDatasetReader",
        "glue": "declutr.task_models.glue.reader:GlueReader",
        "image_text": "declutr.task_models.image_text.reader:ImageTextReader",
        "sentences": "declutr.data.sentence_reader:SentenceReader",
        "text_lines": "declutr.task_models.text_vae.reader:TextLinesReader",
        "text_pairs": "declutr.data.pair_reader:TextPairReader",
    },
    "allennlp.data.token_indexers.token_indexer:TokenIndexer": {
        "declutr": "declutr.pretrained_parts.tokens:ArchivedVocabularyIndexer",
    },
    "allennlp.data.tokenizers.tokenizer:Tokenizer": {
        "declutr": "declutr.pretrained_parts.tokens:TrainedTokenizer",
    },
    "allennlp.models.model:Model": {
        "declutr": "declutr.models.declutr:DeCLUTR",
        "image_text": "declutr.task_models.image_text.model:ImageText",
        "reclaim": "declutr.models.reclaim.model:ReclaimModel",
        "text_vae": "declutr.task_models.text_vae.model:TextVae",
    },
    "allennlp.modules.seq2vec_encoders.seq2vec_encoder:Seq2VecEncoder": {
        "declutr": "declutr.pretrained_parts.modules:TrainedPooler",
        "ngram_convolutions": "declutr.modules.ngram_pooler:NGramConvolutions",
    },
    "allennlp.modules.text_field_embedders.text_field_embedder:TextFieldEmbedder": {
        "declutr": "declutr.pretrained_parts.modules:TrainedTextFieldEmbedder",
        "mlm": "declutr.modules.embedders:MLMTextFieldEmbedder",
    },
    "allennlp.modules.token_embedders.token_embedder:TokenEmbedder": {
        "declutr": "declutr.pretrained_parts.modules:TrainedTokenEmbedder",
        "pretrained_transformer_mlm": "declutr.modules.embedders:PretrainedTransformerEmbedderMLM",
    },
    "allennlp.nn.parallel.ddp_accelerator:DdpAccelerator": {
        "fsdp": "declutr.training.sharding:FsdpAccelerator",
    },
    "allennlp.predictors.predictor:Predictor": {
        "declutr": "declutr.models.predictor:DeCLUTRPredictor",
        "reclaim": "declutr.models.predictor:TaskModelPredictor",
    },
    "allennlp.training.callbacks.callback:TrainerCallback": {
        "evaluate_embeddings": "declutr.training.evaluation_callback:EvaluateEmbeddings",
        "exact_resume": "declutr.training.exact_resume:ExactResume",
        "run_record": "declutr.training.run_record:RunRecord",
    },
    "allennlp.training.checkpointer:Checkpointer": {
        "atomic": "declutr.training.checkpointer:AtomicCheckpointer",
    },
    "allennlp.training.learning_rate_schedulers.learning_rate_scheduler:LearningRateScheduler": {
        "linear_decay": "declutr.training.linear_decay:LinearDecay",
    },
    "allennlp.training.trainer:Trainer": {
        "declutr": "declutr.training.trainer:DeCLUTRTrainer",
    },
    "declutr.data.augmentations:Augmentation": {
        "callable": "declutr.data.augmentations:CallableAugmentation",
        "eda": "declutr.data.word_edits:EasyDataAugmentation",
    },
    "declutr.models.views:Views": {
        "cutoff": "declutr.models.views:CutoffViews",
        "dropout": "declutr.models.views:DropoutViews",
        "dropout_rates": "declutr.models.views:DropoutRateViews",
        "levels": "declutr.models.views:LevelViews",
        "spans": "declutr.models.views:SpanViews",
    },
    "declutr.modules.heads:Head": {
        "projector": "declutr.modules.heads:Projector",
        "tanh": "declutr.modules.heads:Tanh",
    },
    "declutr.objectives.objective:Miner": {
        "pair_margin": "declutr.objectives.library.pytorch_metric_learning:PairMarginMiner",
        "pml": "declutr.objectives.library.pytorch_metric_learning:PytorchMetricLearningMiner",
        "pytorch_metric_learning": (
            "declutr.objectives.library.pytorch_metric_learning:PytorchMetricLearningMiner"
        ),
    },
    "declutr.objectives.objective:Objective": {
        "align_uniform": "declutr.objectives.without_negatives.alignment_uniformity:AlignUniform",
        "barlow_twins": "declutr.objectives.without_negatives.decorrelation:BarlowTwins",
        "byol": "declutr.objectives.without_negatives.bootstrap:BYOL",
        "contrastive": "declutr.objectives.pairs.metric_learning:Contrastive",
        "cosine_regression": "declutr.objectives.pairs.sentence_bert:CosineRegression",
        "cross_batch_memory": "declutr.objectives.memories.cross_batch_memory:CrossBatchMemory",
        "debiased_contrastive": "declutr.objectives.pairs.debiased:DebiasedContrastive",
        "hard_negative": "declutr.objectives.pairs.debiased:HardNegative",
        "info_nce": "declutr.objectives.pairs.info_nce:InfoNCE",
        "instance_discrimination": (
            "declutr.objectives.memories.instance_bank:InstanceDiscrimination"
        ),
        "is_bert": "declutr.objectives.without_negatives.mutual_information:ISBert",
        "lifted_structured": "declutr.objectives.pairs.metric_learning:LiftedStructured",
        "mochi": "declutr.objectives.memories.hard_negative_mixing:HardNegativeMixing",
        "moco": "declutr.objectives.memories.momentum_contrast:MomentumContrast",
        "n_pair": "declutr.objectives.pairs.info_nce:NPair",
        "nce": "declutr.objectives.pairs.noise_contrastive:NoiseContrastive",
        "nt_xent": "declutr.objectives.nt_xent:NTXent",
        "pair_softmax": "declutr.objectives.pairs.sentence_bert:PairSoftmax",
        "pml": "declutr.objectives.library.pytorch_metric_learning:PytorchMetricLearning",
        "pytorch_metric_learning": (
            "declutr.objectives.library.pytorch_metric_learning:PytorchMetricLearning"
        ),
        "quick_thoughts": "declutr.objectives.pairs.quick_thoughts:QuickThoughts",
        "reclaim": "declutr.objectives.memories.reclaim:Reclaim",
        "scd": "declutr.objectives.without_negatives.decorrelation:SCD",
        "soft_nearest_neighbours": (
            "declutr.objectives.pairs.metric_learning:SoftNearestNeighbours"
        ),
        "sup_con": "declutr.objectives.nt_xent:SupCon",
        "swav": "declutr.objectives.without_negatives.swapped_prediction:SwappedPrediction",
        "triplet": "declutr.objectives.pairs.triplet:Triplet",
        "weighted_sum": "declutr.objectives.weighted_sum:WeightedSum",
    },
}


class _Registries(dict[type, Any]):
    """AllenNLP's registries by base class, extended by the names in `COMPONENTS`.

    # Parameters

    registries : AllenNLP's own registries.
    """

    def __init__(self, registries: defaultdict[type, dict[str, Any]]) -> None:
        super().__init__()
        self._registries = registries
        for base in list(registries):
            self[base]

    def __missing__(self, base: type) -> Any:
        names: Any = self._registries[base]
        if _place(base) in COMPONENTS:
            names = NamesOnDemand(names, COMPONENTS[_place(base)])
        return self.setdefault(base, names)  # if two threads get here, both use the first registry

    def get(self, base: type, default: Any = None) -> Any:
        return self[base] if _place(base) in COMPONENTS else super().get(base, default)


def _place(base: type) -> str:
    return f"{base.__module__}:{base.__qualname__}"


def registered_name(base: type[Registrable], registered: type) -> Optional[str]:
    """Return the name that a class was first registered under, without importing anything.

    # Parameters

    base : the registrable base class, such as `Model`.
    registered : the class to look up.

    # Returns

    The registered name, or `None` if the class is not registered under `base`.
    """
    names = Registrable._registry[base]
    known = names.imported if isinstance(names, NamesOnDemand) else names
    return next((name for name, (cls, _) in known.items() if cls is registered), None)


# AllenNLP reads this attribute to look up names, and writes to it to register them.
Registrable._registry = _Registries(Registrable._registry)  # type: ignore[assignment]
