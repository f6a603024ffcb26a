// I have: texts, one a line
// I want: iVAE with the mutual information of texts and codes in its objective
// iVAE-MI of Fang et al. (2019): the codes of all texts together are to look like the prior.
(import "text_ivae.jsonnet") {
    posterior+:: { penalty: "aggregate" },
}
