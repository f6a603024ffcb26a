// I have: texts with classes
// I want: texts of a class together (supervised contrast)
// Supervised contrast (Khosla et al., 2020) of texts with classes: two dropout passes of each, and all
// texts of a class belong together. train_data_path is a table with text and label, 0 or above.
// Two augmentations of each text in place of two passes, drawn anew in every epoch:
//   -o '{"dataset_reader.augmentation": {"type": "span_deletion"}}'
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "../sentences/sentences.libsonnet") {
    temperature:: 0.1,
    views:: "spans",  // the texts of the reader: each twice, which dropout tells apart
    local settings = self,

    dataset_reader+: { type: "text_pairs", anchor: "text", positive: "text", labels: "class" },
    model+: { loss: { type: "sup_con", temperature: settings.temperature } },
}
