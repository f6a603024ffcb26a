// I have: captions, and features of the regions of their images (Flickr30k's of SCAN)
// I want: RECLAIM in place of SCAN's triplet loss
// Archives are selected by what the critic finds: table 3's "RECLAIM".
(import "scan.libsonnet") {
    dataset_reader+: { with_ids: true },
    validation_dataset_reader: super.dataset_reader,
    model: self.only_reclaim,
    trainer+: { validation_metric: "+critic_rsum" },
}
