// I have: texts, one a line
// I want: iVAE with RECLAIM beside its loss
// The last row of table 4. contrast:: "batch" makes it the row "vanilla CL".
(import "text_ivae.jsonnet") {
    contrast:: "bank",
}
