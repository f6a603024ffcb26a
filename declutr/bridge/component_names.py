"""The table of registered names of this package, by base class, with the places of their classes.

Strings alone: `declutr.bridge.registry` makes them known to AllenNLP, and imports the module of a
class when its name is looked up.
"""

PREFIX = "declutr-"
"""What makes a name unambiguous: `declutr-glue` is always the reader "glue" of this package."""

# Maps the place of each base class (`module:class`) to its registered names and their places.
COMPONENTS: dict[str, dict[str, str]] = {
    "allennlp.commands.subcommand:Subcommand": {
        "embed": "declutr.commands.registered:Embed",
        "evaluate-embeddings": "declutr.commands.registered:EvaluateEmbeddings",
        "export": "declutr.commands.registered:Export",
        "index": "declutr.commands.registered:Index",
        "leaderboard": "declutr.commands.registered:Leaderboard",
        "mine-negatives": "declutr.commands.registered:MineNegatives",
        "sample-spans": "declutr.commands.registered:SampleSpans",
        "search": "declutr.commands.registered:Search",
        "split-sentences": "declutr.commands.registered:SplitSentences",
        "static-vectors": "declutr.commands.registered:StaticVectors",
        "whiten": "declutr.commands.registered:Whiten",
    },
    "allennlp.data.data_loaders.data_loader:DataLoader": {
        "declutr": "declutr.data.data_loader:DeCLUTRDataLoader",
    },
    "allennlp.data.dataset_readers.dataset_reader:DatasetReader": {
        "augmented": "declutr.data.augmented_reader:AugmentedReader",
        "declutr": "declutr.data.span_reader:DeCLUTRDatasetReader",
        "glue": "declutr.task_models.glue.reader:GlueReader",
        "image_text": "declutr.task_models.image_text.reader:ImageTextReader",
        "semi_supervised": "declutr.task_models.glue.semi_supervised:SemiSupervisedReader",
        "sentences": "declutr.data.sentence_reader:SentenceReader",
        "text_lines": "declutr.task_models.text_vae.reader:TextLinesReader",
        "text_pairs": "declutr.data.pair_reader:TextPairReader",
    },
    "allennlp.data.token_indexers.token_indexer:TokenIndexer": {
        "declutr": "declutr.pretrained_parts.tokens:ArchivedVocabularyIndexer",
    },
    "allennlp.data.tokenizers.tokenizer:Tokenizer": {
        "declutr": "declutr.pretrained_parts.tokens:TrainedTokenizer",
        "nltk_words": "declutr.task_models.image_text.scan_words:NltkWords",
    },
    "allennlp.data.vocabulary:Vocabulary": {
        "scan": "declutr.task_models.image_text.scan_words:ScanVocabulary",
    },
    "allennlp.models.model:Model": {
        "consistency": "declutr.models.consistency:ConsistencyModel",
        "declutr": "declutr.models.declutr:DeCLUTR",
        "glue": "declutr.task_models.glue.model:GlueModel",
        "image_text": "declutr.task_models.image_text.model:ImageText",
        "reclaim": "declutr.models.reclaim.model:ReclaimModel",
        "scan": "declutr.task_models.image_text.scan:Scan",
        "text_vae": "declutr.task_models.text_vae.model:TextVae",
    },
    "allennlp.modules.seq2vec_encoders.seq2vec_encoder:Seq2VecEncoder": {
        "classification_pooler": "declutr.modules.classification_pooler:ClassificationPooler",
        "declutr": "declutr.pretrained_parts.modules:TrainedPooler",
        "ngram_convolutions": "declutr.modules.ngram_pooler:NGramConvolutions",
        "token_embedding_bag": "declutr.modules.token_embedding_bag:MeanOfBag",
        "token_pooling": "declutr.modules.token_pooling:TokenPooling",
    },
    "allennlp.modules.text_field_embedders.text_field_embedder:TextFieldEmbedder": {
        "declutr": "declutr.pretrained_parts.modules:TrainedTextFieldEmbedder",
        "mlm": "declutr.modules.embedders:MLMTextFieldEmbedder",
        "token_embedding_bag": "declutr.modules.token_embedding_bag:TokenEmbeddingBag",
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
        "glue": "declutr.task_models.glue.predictors:GluePredictor",
        "glue_submission": "declutr.task_models.glue.predictors:GlueSubmission",
        "image_text": "declutr.task_models.image_text.predictor:ImageTextPredictor",
        "reclaim": "declutr.models.predictor:TaskModelPredictor",
        "text_vae": "declutr.task_models.text_vae.predictor:TextVaePredictor",
    },
    "allennlp.training.callbacks.callback:TrainerCallback": {
        "evaluate_embeddings": "declutr.training.evaluation_callback:EvaluateEmbeddings",
        "exact_resume": "declutr.training.exact_resume:ExactResume",
        "refresh_clusters": "declutr.training.cluster_callback:RefreshClusters",
        "run_record": "declutr.training.run_record:RunRecord",
    },
    "allennlp.training.checkpointer:Checkpointer": {
        "atomic": "declutr.training.checkpointer:AtomicCheckpointer",
    },
    "allennlp.training.learning_rate_schedulers.learning_rate_scheduler:LearningRateScheduler": {
        "linear_decay": "declutr.training.linear_decay:LinearDecay",
        "piecewise_constant": "declutr.training.piecewise_constant:PiecewiseConstant",
        "shrinking_decay": "declutr.training.shrinking_decay:ShrinkingDecay",
    },
    "allennlp.training.trainer:Trainer": {
        "declutr": "declutr.training.trainer:DeCLUTRTrainer",
    },
    "declutr.data.augmentations:Augmentation": {
        "callable": "declutr.data.augmentations:CallableAugmentation",
        "chain": "declutr.data.augmentations:Chain",
        "eda": "declutr.data.word_edits:EasyDataAugmentation",
        "masked_lm": "declutr.data.masked_words:MaskedWords",
        "span_deletion": "declutr.data.span_edits:SpanDeletion",
        "span_reordering": "declutr.data.span_edits:SpanReordering",
    },
    "declutr.models.views:Views": {
        "cutoff": "declutr.models.views:CutoffViews",
        "dropout": "declutr.models.views:DropoutViews",
        "dropout_rates": "declutr.models.views:DropoutRateViews",
        "levels": "declutr.models.views:LevelViews",
        "spans": "declutr.models.views:SpanViews",
        "tension": "declutr.models.tension_views:TensionViews",
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
        "contrastive_tension": "declutr.objectives.pairs.contrastive_tension:ContrastiveTension",
        "cosine_regression": "declutr.objectives.pairs.sentence_bert:CosineRegression",
        "cpc": "declutr.objectives.pairs.predictive_coding:PredictiveCoding",
        "cross_batch_memory": "declutr.objectives.memories.cross_batch_memory:CrossBatchMemory",
        "debiased_contrastive": "declutr.objectives.pairs.debiased:DebiasedContrastive",
        "deep_cluster": "declutr.objectives.without_negatives.deep_cluster:DeepCluster",
        "distillation": "declutr.objectives.memories.distillation:Distillation",
        "hard_negative": "declutr.objectives.pairs.debiased:HardNegative",
        "info_nce": "declutr.objectives.pairs.info_nce:InfoNCE",
        "instance_discrimination": (
            "declutr.objectives.memories.instance_bank:InstanceDiscrimination"
        ),
        "is_bert": "declutr.objectives.without_negatives.mutual_information:ISBert",
        "lifted_structured": "declutr.objectives.pairs.metric_learning:LiftedStructured",
        "matryoshka": "declutr.objectives.matryoshka:Matryoshka",
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
    "declutr.task_models.text_vae.posterior:Posterior": {
        "gaussian": "declutr.task_models.text_vae.posterior:LatentCode",
        "implicit": "declutr.task_models.text_vae.implicit:ImplicitPosterior",
    },
}

SUBCOMMANDS = COMPONENTS["allennlp.commands.subcommand:Subcommand"]
"""The commands that this package registers with AllenNLP."""


def may_be_taken(base: str) -> bool:
    """Return whether other packages may take this package's names of a base class.

    They may where the base class is AllenNLP's. Whoever adds to a base class of this package knows
    the names that it has.

    # Parameters

    base : the place of the base class, as in `COMPONENTS`.
    """
    return base.startswith("allennlp.")


_SHORT = {name for base, names in COMPONENTS.items() if may_be_taken(base) for name in names}


def short(name: object) -> object:
    """Return a registered name of this package without its prefix, and anything else as it is.

    >>> short("declutr-glue"), short("glue"), short("declutr-of-somebody"), short(None)
    ('glue', 'glue', 'declutr-of-somebody', None)
    """
    if isinstance(name, str) and (rest := name.removeprefix(PREFIX)) in _SHORT:
        return rest
    return name
