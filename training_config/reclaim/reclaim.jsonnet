// I have: rows of a task of GLUE, with their classes
// I want: a classifier with RECLAIM beside its loss
// As submitted to ICLR 2021, with all labels: lambda 0.1 and 100 negatives.
import "reclaim.libsonnet"
