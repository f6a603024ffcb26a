// I have: captions, and features of the regions of their images (Flickr30k's of SCAN)
// I want: SCAN with attention in both directions in one model
// SCAN's authors train two models and average their similarities.
(import "scan.libsonnet") { cross_attn:: "both" }
