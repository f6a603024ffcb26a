// I have: sentences, one a line
// I want: the soft nearest neighbour loss
// The soft nearest neighbour loss (Frosst et al., 2019) over two dropout passes: the two embeddings
// of a sentence are each other's neighbours among all of the batch. Cosine distances, so that one
// temperature serves embeddings of any length.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") {
    temperature:: 0.1,
    local settings = self,

    model+: {
        loss: {
            type: "soft_nearest_neighbours",
            distance: "cosine",
            temperature: settings.temperature,
        },
    },
}
