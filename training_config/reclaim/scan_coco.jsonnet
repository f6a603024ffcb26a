// I have: captions, and features of the regions of their images (COCO's of SCAN)
// I want: the same on COCO (SCAN)
(import "scan.libsonnet") { data:: "coco" }
