// The grid of `python -m benchmarks study`: every run of every part.
//
// `starts` are encoders before training, by name; `parts` have blocks, and a block is all
// combinations of its corpora, starts, rows and seeds. A row without a recipe is the start itself.
// `tasks` are what runs of a part are scored on.
// `keys` are settings of the recipe, as `declutr.train` takes them. They are given even where they
// are the recipe's own: a line of results says all that it depends on.
local seeds = [1, 2, 3, 4, 5];
local of_start = [0];  // nothing is drawn

// ---- static encoders ----

local texts(unit, sif, components=0) =
  { kind: "texts", unit: unit, sif: sif, components: components, dimension: 256, vocabulary: 30000 };
local alone = { name: "start", recipe: null, keys: {} };
local static_declutr = {
  recipe: "static_declutr",
  keys: {
    learning_rate: 1e-2,
    temperature: 0.2,
    min_span_len: 32,
    max_span_len: 128,
    batch_size: 32,
    num_epochs: 10,
  },
};
local changed(name, changes) = static_declutr { name: name, keys+: changes };

// ---- transformers ----
// Pre-trained here by the recipe `mlm_only`, on the corpus itself. On a GPU, change its size; or take
// any folder of a transformer: `{ kind: "encoder", encoder: "base" }` and `--encoder base=FOLDER`.
local transformer = "small transformer";
local pretrained = {
  kind: "pretrained",
  layers: 2,
  hidden_size: 128,
  heads: 4,
  vocabulary: 8000,
  keys: {
    learning_rate: 1e-3,
    num_epochs: 8,
    num_anchors: 4,
    batch_size: 16,
    min_span_len: 24,
    max_span_len: 126,
  },
};
local paper_spans = { min_span_len: 8, max_span_len: 64, batch_size: 16 };
local declutr(name, changes={}) = {
  name: name,
  recipe: "declutr",
  keys: paper_spans { learning_rate: 5e-4, num_epochs: 2, temperature: 0.05 } + changes,
};
// Section 5.2: runs with one anchor get twice the documents a step and twice the epochs, so that
// they see as many spans, in as many steps.
local one_anchor = { num_anchors: 1, batch_size: 2 * paper_spans.batch_size, num_epochs: 4 };
local with(anchors, changes) =
  (if anchors == 1 then one_anchor else { num_anchors: anchors }) + changes;

// Sentence objectives: 500 steps of 64 sentences of the same documents.
local of_sentences(name, recipe, changes={}) = {
  name: name,
  recipe: recipe,
  texts: "sentences",
  keys: {
    batch_size: 64,
    num_epochs: 1,
    learning_rate: 1e-4,
    "data_loader.subset": { size: 32000 },
  } + changes,
};
local trained_on(corpora, start, rows) = [
  { corpora: corpora, starts: [start], rows: [alone], seeds: of_start },
  { corpora: corpora, starts: [start], rows: rows, seeds: [1, 2, 3] },
];
local similarity = ["STS12", "STS-B 2012", "SICK-R", "Cranfield", "span retrieval"];
local everything = similarity + ["TREC", "SUBJ", "surrogate:past_present"];

{
  starts: {
    "PPMI, unit length x SIF": texts(true, 1e-3),
    "PPMI": texts(false, null),
    "PPMI, SIF": texts(false, 1e-3),
    "PPMI, SIF less first component": texts(false, 1e-3, 1),
    random: { kind: "random", dimension: 256, vocabulary: 30000 },
    MiniLM: { kind: "encoder", encoder: "minilm" },
    "MiniLM, distilled": { kind: "distil", encoder: "minilm", dimension: 256 },
    "MiniLM, distilled by model2vec": { kind: "model2vec", encoder: "minilm", dimension: 256 },
    BM25: { kind: "bm25" },
    [transformer]: pretrained,
    "small transformer, first token": pretrained { pooling: "cls" },
  },

  parts: {
    static: {
      title: "Static encoders",
      tasks: similarity + ["TREC"],
      local chosen_on = ["openstax_sections"],
      local others = ["acl_papers", "eltec_eng_chapters"],
      local main = ["PPMI, unit length x SIF"],
      blocks: [
        { corpora: chosen_on + others, starts: main, rows: [alone], seeds: of_start },
        {
          corpora: chosen_on + others,
          starts: main + ["PPMI"],
          rows: [changed("static_declutr", {})],
          seeds: seeds,
        },
        {
          corpora: chosen_on + others,
          starts: ["PPMI", "PPMI, SIF", "PPMI, SIF less first component", "BM25"],
          rows: [alone],
          seeds: of_start,
        },
        { corpora: chosen_on, starts: ["random"], rows: [alone], seeds: seeds },
        {
          corpora: chosen_on,
          starts: ["MiniLM, distilled", "MiniLM, distilled by model2vec", "MiniLM"],
          rows: [alone],
          seeds: of_start,
        },
        {
          corpora: chosen_on,
          starts: ["MiniLM, distilled", "random"],
          rows: [changed("static_declutr", {})],
          seeds: seeds,
        },
      ],
    },

    static_search: {
      title: "Settings of static_declutr, one at a time",
      tasks: $.parts.static.tasks,
      blocks: [{
        corpora: ["openstax_sections"],
        starts: ["PPMI, unit length x SIF"],
        rows: [alone] + [
          changed("%s, %d epochs" % [change[0], epochs], change[1] { num_epochs: epochs })
          for epochs in [3]
          for change in [
            ["lr 1e-2, temperature 0.2, spans of 32 to 128", {}],
            ["lr 1e-3", { learning_rate: 1e-3 }],
            ["lr 3e-3", { learning_rate: 3e-3 }],
            ["lr 3e-2", { learning_rate: 3e-2 }],
            ["temperature 0.05", { temperature: 0.05 }],
            ["temperature 0.1", { temperature: 0.1 }],
            ["temperature 0.5", { temperature: 0.5 }],
            ["spans of 8 to 64", { min_span_len: 8, max_span_len: 64 }],
            ["128 documents a step", { batch_size: 128 }],
          ]
        ] + [changed("lr 1e-2, 30 epochs", { num_epochs: 30 })],
        seeds: [1],
      }],
    },

    // DeCLUTR (ACL 2021), figure 2: anchors, temperature, positives and their strategy.
    figure2: {
      title: "DeCLUTR's figure 2: anchors, temperature, positives",
      tasks: everything,
      blocks: [
        {
          corpora: ["openstax_sections"],
          starts: [transformer, "small transformer, first token"],
          rows: [alone],
          seeds: of_start,
        },
        {
          corpora: ["openstax_sections"],
          starts: [transformer],
          rows: [
            declutr("%d anchors" % anchors, with(anchors, {}))
            for anchors in [1, 2, 4]
          ] + [
            declutr("temperature %g" % temperature, { temperature: temperature })
            for temperature in [5e-4, 5e-3, 5e-1]
          ] + [
            declutr("%d positives" % positives, { num_positives: positives })
            for positives in [1, 4]
          ] + [
            declutr("%s positives, %d anchors" % [strategy, anchors], with(anchors, {
              "dataset_reader.sampling_strategy": strategy,
            }))
            for strategy in ["adjacent", "subsuming"]
            for anchors in [1, 2]
          ] + [
            declutr("%d documents" % documents, { "data_loader.subset": { size: documents } })
            for documents in [200, 660]
          ],
          seeds: [1, 2, 3],
        },
      ],
    },

    // DeCLUTR (ACL 2021), figure 3: the objective.
    figure3: {
      title: "DeCLUTR's figure 3: with and without masked language modelling",
      tasks: everything,
      blocks: trained_on(["openstax_sections"], transformer, [
        declutr("contrastive and MLM"),
        declutr("contrastive") { recipe: "contrastive_only" },
        declutr("MLM") { recipe: "mlm_only" },
      ]),
    },

    // DeCLUTR v1 (arXiv, June 2020), figure S1.
    figureS1: {
      title: "DeCLUTR v1's figure S1: projection and memory bank",
      tasks: everything,
      blocks: trained_on(["openstax_sections"], transformer, [
        declutr("DeCLUTR"),
        declutr("projection") { recipe: "declutr_projection" },
        declutr("memory bank") { recipe: "declutr_memory_bank" },
      ]),
    },

    // SCD (2022), table 3: its two terms alone and together.
    scd: {
      title: "SCD's ablation",
      tasks: everything + ["geometry"],
      blocks: trained_on(["openstax_sections"], transformer, [
        of_sentences("self-contrast", "scd_self_contrast"),
        of_sentences("decorrelation", "scd_decorrelation"),
        of_sentences("SCD", "scd"),
      ]),
    },

    objectives: {
      title: "Objectives from one start",
      tasks: everything,
      blocks: trained_on(["openstax_sections"], transformer, [
        declutr("DeCLUTR"),
        declutr("DeCLUTR without MLM") { recipe: "contrastive_only" },
        declutr("MLM") { recipe: "mlm_only" },
        of_sentences("SimCSE", "simcse"),
        of_sentences("SCD", "scd"),
        of_sentences("Barlow Twins", "barlow_twins"),
        of_sentences("Contrastive Tension, in-batch negatives", "contrastive_tension_in_batch"),
        of_sentences("TSDAE", "tsdae"),
      ]),
    },

    adaptation: {
      title: "Adapting a public sentence encoder to a domain",
      tasks: similarity,
      local gentle = { learning_rate: 2e-5, num_epochs: 1, max_span_len: 128, min_span_len: 32 },
      blocks: trained_on(["acl_papers"], "MiniLM", [
        declutr("DeCLUTR", gentle),
        declutr("DeCLUTR without MLM", gentle) { recipe: "contrastive_only" },
        declutr("MLM", gentle) { recipe: "mlm_only" },
        of_sentences("SimCSE", "simcse", { learning_rate: 2e-5 }),
        of_sentences("TSDAE", "tsdae", { learning_rate: 2e-5 }),
      ]),
    },
  },
}
