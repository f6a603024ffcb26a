// lambda = 1.
(import "../reclaim.libsonnet") { weight:: 1.0 }
