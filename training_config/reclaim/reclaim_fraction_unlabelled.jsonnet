// I have: rows of a task of GLUE, few of them with their classes
// I want: a classifier with RECLAIM, whose term sees the rows without a class as well
// 10 % of the labels are read, and all texts: those without a label are in the term and not in the
// task's loss. K is that of all rows, which the banks hold. An epoch goes through all rows.
(import "reclaim.libsonnet") {
    label_fraction:: 0.1,
    dataset_reader+: { keep_unlabelled: true },
}
