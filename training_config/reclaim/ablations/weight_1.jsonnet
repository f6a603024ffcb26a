// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with lambda = 1
(import "../reclaim.libsonnet") { weight:: 1.0 }
