// lambda = 0.5.
(import "../reclaim.libsonnet") { weight:: 0.5 }
