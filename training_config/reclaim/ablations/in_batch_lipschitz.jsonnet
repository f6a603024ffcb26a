// I have: rows of a task of GLUE, with their classes
// I want: contrastive learning with the negatives of the batch and a 1-Lipschitz critic
// The paper does not say that it has this one; until release 2.2 the recipe in_batch was this.
(import "in_batch.jsonnet") { model+: { objective+: { lipschitz: true } } }
