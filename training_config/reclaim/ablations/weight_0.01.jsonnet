// lambda = 0.01.
(import "../reclaim.libsonnet") { weight:: 0.01 }
