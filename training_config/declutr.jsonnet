// I have: documents of at least 2,048 tokens, one a line
// I want: an encoder of sentences and paragraphs (DeCLUTR)
// DeCLUTR (Giorgi et al., ACL 2021, section 4.1): two anchors of 32 to 512 tokens a document, two
// positives each, NT-Xent at temperature 0.05 plus masked language modelling, 16 documents a step.
// The paper trains on documents of at least 2,048 tokens; shorter ones are left out.
(import "base.libsonnet") {
    dataset_reader+: { short_documents: "skip" },
}
