// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with lambda = 0.01
(import "../reclaim.libsonnet") { weight:: 0.01 }
