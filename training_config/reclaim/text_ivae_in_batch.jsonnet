// I have: texts, one a line
// I want: iVAE with a contrastive term whose negatives are those of the batch
// The row "vanilla CL" of table 4.
(import "reclaim_text_ivae.jsonnet") {
    contrast:: "batch",
}
