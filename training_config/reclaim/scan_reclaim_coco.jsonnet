// I have: captions, and features of the regions of their images (COCO's of SCAN)
// I want: captions and images that find each other, with RECLAIM in place of SCAN's triplet loss
(import "scan_reclaim_flickr30k.jsonnet") { data:: "coco" }
