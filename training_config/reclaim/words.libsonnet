// What recipes over words of their own leave of base.libsonnet: there is no transformer.
(import "../base.libsonnet") { transformer_model:: null } + (import "../unused.libsonnet")([
    "num_anchors",
    "num_positives",
    "max_span_len",
    "min_span_len",
    "optimizer",
    "temperature",
    "masked_language_modeling",
    "transformer_model",
])
