// The contrastive objective alone: no masking, and the language modelling head is not even loaded.
(import "declutr.jsonnet") {
    masked_language_modeling:: false,
}
