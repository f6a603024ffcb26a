// I have: captions, and features of the regions of their images (COCO's of SCAN)
// I want: captions and images that find each other by attention (SCAN), on COCO
(import "scan.libsonnet") { data:: "coco" }
