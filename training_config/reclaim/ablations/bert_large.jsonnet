// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with BERT-large
// Table 10. Its row of RECLAIM repeats that of RoBERTa-base in table 1 in every digit, so doubtful.
(import "../reclaim.libsonnet") {
    default_transformer:: "bert-large-uncased",
}
