// I have: captions, and features of the regions of their images (Flickr30k's of SCAN)
// I want: captions and images that find each other by attention (SCAN)
import "scan.libsonnet"
