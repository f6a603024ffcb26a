// I have: sentences, one a line, an encoder that I like, and no GPU to use it on
// I want: its similarities from a table of token vectors, thousands of texts a second (distillation)
// A static encoder learns which of my sentences a teacher finds alike:
//     declutr static-vectors TEACHER --method distil -o start
//     declutr embed TEACHER sentences.txt -o targets
//     declutr train static_distilled sentences.txt --transformer start -s output
// The folder `targets` is model.loss.targets. The teacher's pass is what takes long.
// Optimizer: no public code; see optimizers.libsonnet.
local of_teacher = {
    local settings = self,

    model+: {
        loss: { type: "distillation", targets: "targets", temperature: settings.temperature },
    },
};

(import "../sentences/sentences.libsonnet") + of_teacher + (import "static.libsonnet") {
    batch_size:: 256,
    num_epochs:: 3,
    learning_rate:: 3e-2,
    max_length:: 256,
    views:: null,  // there is one

    dataset_reader+: { with_ids: true },
}
