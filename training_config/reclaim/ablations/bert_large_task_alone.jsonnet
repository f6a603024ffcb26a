// I have: rows of a task of GLUE, with their classes
// I want: the classifier over BERT-large without RECLAIM, to compare with
// Table 10.
(import "../reclaim_task_alone.jsonnet") {
    default_transformer:: "bert-large-uncased",
}
