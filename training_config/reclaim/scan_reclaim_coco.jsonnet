// I have: captions, and features of the regions of their images (COCO's of SCAN)
// I want: RECLAIM in place of SCAN's triplet loss on COCO
(import "scan_reclaim_flickr30k.jsonnet") { data:: "coco" }
