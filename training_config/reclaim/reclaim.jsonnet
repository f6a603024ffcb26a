// RECLAIM (submitted to ICLR 2021) beside a classifier, with all labels: lambda 0.1 and 100 negatives.
import "reclaim.libsonnet"
