// I have: captions, and features of the regions of their images (Flickr30k's of SCAN)
// I want: RECLAIM beside SCAN's triplet loss
// Both are sums over the batch, as SCAN's loss is.
(import "scan_reclaim_flickr30k.jsonnet") {
    model: self.with_reclaim { weight: 0.1, objective+: { reduction: "sum" } },
    trainer+: { validation_metric: "+rsum" },
}
