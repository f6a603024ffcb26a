// I have: captions, and features of the regions of their images (Flickr30k's of SCAN)
// I want: a contrastive loss of the batch alone in place of SCAN's triplet loss
// The critic is without spectral normalisation, and nothing is selected: table 3's "Vanilla CL".
(import "scan_reclaim_flickr30k.jsonnet") {
    num_negatives:: null,  // all others of the batch
    model+: { objective+: { candidates: "batch", lipschitz: false } },
}
