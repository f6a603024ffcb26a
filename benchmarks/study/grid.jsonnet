// The grid of `python -m benchmarks study`: every run of every part.
//
// Two entries with the same texts, settings and seed are one run, whatever they are called.
//
// `starts` are encoders before training, by name; `parts` have blocks, and a block is all
// combinations of its corpora, starts, rows and seeds. A row without a recipe is the start itself.
// `tasks` are what runs of a part are scored on, `curve` is what they are scored on between steps.
// `keys` are settings of the recipe, as `declutr.train` takes them. They are given even where they
// are the recipe's own: a line of results says all that it depends on.
local seeds = [1, 2, 3, 4, 5];
local of_start = [0];  // nothing is drawn

// ---- static encoders ----

local texts(unit, sif, components=0, dimension=256) = {
  kind: "texts",
  unit: unit,
  sif: sif,
  components: components,
  dimension: dimension,
  vocabulary: 30000,
};
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
// Pre-trained here by the recipe `mlm_only`, on `texts` less what is held out: some 18 million tokens,
// in half an hour of one core. On a GPU, change its size and its epochs; or take any folder of a
// transformer: `{ kind: "encoder", encoder: "base" }` and `--encoder base=FOLDER`.
local transformer = "small transformer";
local pretrained = {
  kind: "pretrained",
  texts: ["openstax_sections", "acl_papers", "eltec_eng_chapters"],
  layers: 2,
  hidden_size: 256,
  heads: 4,
  vocabulary: 16000,
  keys: { learning_rate: 5e-4, batch_size: 4, "model.precision": "bfloat16" },
  phases: [
    { num_epochs: 3, num_anchors: 16, min_span_len: 24, max_span_len: 62 },
    { num_epochs: 1, num_anchors: 8, min_span_len: 64, max_span_len: 126 },
  ],
};
// The same recipe on another machine: processors round otherwise, so that it is another transformer.
local again = "small transformer, made again";
local spans(shortest, longest) = { min_span_len: shortest, max_span_len: longest };
// As the part `search` has found them, but for the number of anchors: two, as in the paper.
local base = spans(4, 40) {
  batch_size: 32,
  num_anchors: 2,
  num_positives: 2,
  learning_rate: 3e-4,
  num_epochs: 4,
  temperature: 0.1,
  "model.precision": "bfloat16",
};
local declutr(name, changes={}, recipe="declutr") =
  { name: name, recipe: recipe, keys: base + changes };
local mlm(changes={}) = {
  name: "MLM",
  recipe: "mlm_only",
  local keys = base + changes,
  keys: { [key]: keys[key] for key in std.objectFields(keys) if key != "temperature" },
};
// Sentence objectives: so many steps of 64 sentences of the same documents.
local of_sentences(name, recipe, changes={}, steps=250) = {
  name: name,
  recipe: recipe,
  texts: "sentences",
  keys: {
    batch_size: 64,
    num_epochs: 1,
    learning_rate: 1e-4,
    "data_loader.subset": { size: 64 * steps },
    "model.precision": "bfloat16",
  } + changes,
};
// A quarter of the papers' width, for a quarter of the dimensions of the encoder.
local projector = { "model.head.hidden_dims": [1024, 1024, 1024] };
local mean = { "model.seq2vec_encoder": null };
local simcse = of_sentences("SimCSE", "simcse", mean);
local slow_mean = mean { learning_rate: 1e-5 };
local scd(name, recipe) = of_sentences(name, recipe, projector + slow_mean);
local whitened(name, options) = {
  name: name,
  drawn: false,
  recipe: "transformer_mean",
  texts: "sentences",
  keys: {},
  whitening: ["--max-texts", "32000"] + options,
};
local trained_on(corpora, start, rows, seeds=[1, 2, 3]) = [
  { corpora: corpora, starts: [start], rows: [alone], seeds: of_start },
  { corpora: corpora, starts: [start], rows: rows, seeds: seeds },
];
// Adaptation of an encoder of sentences: a few steps at a low rate.
local gentle = spans(16, 64) {
  learning_rate: 5e-5,
  temperature: 0.05,
  num_epochs: 1,
  "data_loader.subset": { size: 1280 },
};
local adapted(name, recipe, changes={}) =
  of_sentences(name, recipe, mean { learning_rate: 5e-5 } + changes, 80);
local similarity = ["STS12", "STS-B 2012", "SICK-R", "Cranfield", "span retrieval"];
local everything = similarity + ["TREC"];
local probing = ["length", "bigram shift", "tense"];

{
  order: [  // of the parts on the page, and of the runs
    "static",
    "static_search",
    "search",
    "objectives",
    "maps",
    "figure2",
    "figure3",
    "figureS1",
    "scd",
    "release_1_5",
    "adaptation_search",
    "adaptation",
  ],

  // The first picture of the page, and README's.
  overview: {
    title: "What training gains over its start",
    tasks: everything,
    local of(part, corpus, start, row, name) =
      { part: part, corpus: corpus, start: start, row: row, name: name },
    local named = {
      openstax_sections: "textbooks",
      acl_papers: "papers",
      eltec_eng_chapters: "novels",
    },
    rows: [
      of("static", corpus, start[0], "static_declutr", "%s, %s, static_declutr" % [start[1], named[corpus]])
      for start in [["random", "random vectors"], ["PPMI", "plain average"], ["PPMI, unit length x SIF", "best average"]]
      for corpus in std.objectFields(named)
    ] + [
      of("maps", "openstax_sections", transformer, "whitening", "small transformer, whitening"),
    ] + [
      of("objectives", "openstax_sections", transformer, row, "small transformer, " + row)
      for row in ["DeCLUTR", "DeCLUTR without MLM", "MLM", "SimCSE", "SCD", "Barlow Twins"]
                 + ["Contrastive Tension", "TSDAE"]
    ],
  },

  starts: {
    "PPMI, unit length x SIF": texts(true, 1e-3),
    "PPMI": texts(false, null),
    "PPMI, 64 dimensions": texts(false, null, dimension=64),
    "PPMI, 512 dimensions": texts(false, null, dimension=512),
    "PPMI, SIF": texts(false, 1e-3),
    "PPMI, SIF less first component": texts(false, 1e-3, 1),
    random: { kind: "random", dimension: 256, vocabulary: 30000 },
    MiniLM: { kind: "encoder", encoder: "minilm" },
    "MiniLM, first token": { kind: "encoder", encoder: "minilm", pooling: "cls" },
    "MiniLM, distilled": { kind: "distil", encoder: "minilm", dimension: 256 },
    "MiniLM, distilled by model2vec": { kind: "model2vec", encoder: "minilm", dimension: 256 },
    BM25: { kind: "bm25" },
    [transformer]: pretrained,
    "small transformer, first token": pretrained { pooling: "cls" },
    [again]: pretrained { instance: 2 },
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
          starts: main,
          rows: [changed("static_declutr, 30 epochs", { num_epochs: 30 })],
          seeds: seeds,
        },
        {
          corpora: chosen_on + others,
          starts: ["PPMI", "PPMI, SIF", "PPMI, SIF less first component", "BM25"],
          rows: [alone],
          seeds: of_start,
        },
        { corpora: chosen_on + others, starts: ["random"], rows: [alone], seeds: seeds },
        {
          corpora: others,
          starts: ["random"],
          rows: [changed("static_declutr", {})],
          seeds: seeds,
        },
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

    // What the parts below are run with was chosen here, with a seed that they do not have.
    search: {
      title: "Settings of DeCLUTR, SimCSE and SCD from the small transformer, with one seed",
      tasks: similarity,
      local long = spans(8, 64) {
        batch_size: 16,
        num_anchors: 2,
        num_positives: 2,
        learning_rate: 5e-4,
        num_epochs: 2,
        temperature: 0.05,
      },
      local of_long(changed, changes) =
        { name: "DeCLUTR, spans of 8 to 64, " + changed, recipe: "declutr", keys: long + changes },
      local of_short(changed, changes={}, recipe="declutr") = declutr(
        "DeCLUTR, 4 anchors of 4 to 40, " + changed,
        { num_anchors: 4, learning_rate: 1e-3 } + changes,
        recipe
      ),
      local in_float32(name, recipe, changes) = {
        name: name + ", float32, 500 steps",
        recipe: recipe,
        texts: "sentences",
        keys: {
          batch_size: 64,
          num_epochs: 1,
          learning_rate: 1e-4,
          "data_loader.subset": { size: 32000 },
        } + changes,
      },
      blocks: [
        { corpora: ["openstax_sections"], starts: [transformer], rows: [alone], seeds: of_start },
        {
          corpora: ["openstax_sections"],
          starts: [transformer],
          rows: [
            of_long("lr %s" % rate, { learning_rate: std.parseJson(rate) })
            for rate in ["1e-4", "5e-4", "2e-3"]
          ] + [
            of_long("temperature 0.2", { temperature: 0.2 }),
            of_short("lr 1e-3", {}),
            of_short("lr 3e-4", { learning_rate: 3e-4 }),
            of_short("lr 3e-3", { learning_rate: 3e-3 }),
            of_short("temperature 0.05", { temperature: 0.05 }),
            of_short("temperature 0.2", { temperature: 0.2 }),
            of_short("4 to 20 tokens", spans(4, 20)),
            of_short("8 epochs", { num_epochs: 8 }),
            of_short("without MLM", recipe="contrastive_only"),
            in_float32("SimCSE, first token, lr 1e-4", "simcse", {}),
            in_float32("SimCSE, mean, lr 1e-4", "simcse", mean),
            in_float32("SCD, mean, lr 1e-4", "scd", mean),
            in_float32("SCD, mean, lr 1e-4, a tenth of the decorrelation", "scd", mean {
              "model.loss.decorrelation_weight": 0.0005,
            }),
          ] + [
            of_sentences("SimCSE, mean, lr " + rate, "simcse", mean {
              learning_rate: std.parseJson(rate),
            })
            for rate in ["3e-4", "1e-3"]
          ] + [
            of_sentences("SimCSE, mean, lr 3e-4, temperature 0.2", "simcse", mean {
              "model.loss.temperature": 0.2,
              learning_rate: 3e-4,
            }),
          ] + [
            of_sentences("SCD, mean, lr " + rate, "scd", projector + mean {
              learning_rate: std.parseJson(rate),
            })
            for rate in ["1e-5", "3e-5", "1e-4"]
          ] + [
            of_sentences("SCD, mean, lr 3e-5, a tenth of the decorrelation", "scd", projector + mean {
              "model.loss.decorrelation_weight": 0.0005,
              learning_rate: 3e-5,
            }),
          ] + [
            of_sentences("%s, lr %s" % [method[0], rate], method[1], method[2] {
              learning_rate: std.parseJson(rate),
            })
            for method in [
              ["Barlow Twins, mean", "barlow_twins", projector + mean],
              ["Contrastive Tension, mean", "contrastive_tension_in_batch", mean],
              ["TSDAE, mean", "tsdae", mean],
            ]
            for rate in ["1e-5", "1e-4"]
          ],
          seeds: [11],
        },
      ],
    },

    objectives: {
      title: "Objectives from one start",
      tasks: everything + probing + ["geometry"],
      curve: {
        tasks: ["STS12", "SICK-R"],
        every_num_steps: 80,
        every_num_epochs: 1000,  // beside these, the last step
      },
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
            declutr("DeCLUTR"),
            declutr("DeCLUTR without MLM", recipe="contrastive_only"),
            mlm(),
            simcse,
            scd("SCD", "scd"),
            of_sentences("Barlow Twins", "barlow_twins", projector + slow_mean),
            of_sentences("Contrastive Tension", "contrastive_tension_in_batch", slow_mean),
            of_sentences("TSDAE", "tsdae", slow_mean),
          ],
          seeds: [1, 2, 3],
        },
      ],
    },

    // Nothing but a map of embeddings is fitted, to as many sentences as the objectives see.
    maps: {
      title: "Whitening and flow of the same start",
      tasks: everything,
      blocks: trained_on(["openstax_sections"], transformer, [
        whitened("whitening", []),
        whitened("whitening to 128 dimensions", ["--dimension", "128"]),
        whitened("flow", ["--method", "flow"]),
      ], seeds=[1]),  // nothing is drawn
    },

    // The settings of the table of release 1.5.0, and changes of them, each alone.
    release_1_5: {
      title: "The settings of 1.5.0, and what each of them costs",
      tasks: similarity,
      local old = spans(8, 48) {
        batch_size: 16,
        num_epochs: 4,
        learning_rate: 5e-5,
        temperature: 0.05,
      },
      local wrong = projector {
        learning_rate: 3e-5,
        "trainer.optimizer": {
          type: "huggingface_adamw",
          eps: 1e-6,
          correct_bias: false,
          weight_decay: 0.1,
          parameter_groups: [[["@norms_and_biases"], { weight_decay: 0.0 }]],
          lr: 3e-5,
        },
        "trainer.learning_rate_scheduler": { type: "slanted_triangular", cut_frac: 0.1, ratio: 32 },
      },
      local right = projector { learning_rate: 3e-5 },
      local without_head(keys) =
        { [key]: keys[key] for key in std.objectFields(keys) if key != "model.head.hidden_dims" },
      local of_simcse(name, keys) =
        of_sentences("SimCSE" + name, "simcse", without_head(keys), 500),
      local of_scd(name, keys) = of_sentences("SCD" + name, "scd", keys, 500),
      blocks: trained_on(["openstax_sections"], transformer, [
        declutr("DeCLUTR as in 1.5.0", old),
        declutr("DeCLUTR, spans of 32 to 126", old + spans(32, 126)),
        declutr("DeCLUTR, learning rate 3e-4", old { learning_rate: 3e-4 }),
        declutr("DeCLUTR, twice the steps", old { num_epochs: 8 }),
        of_simcse(" as in 1.5.0", wrong),
        of_simcse(", its own optimizer", right),
        of_simcse(", mean", wrong + mean),
        of_scd(" as in 1.5.0", wrong),
        of_scd(", its own optimizer", right),
      ]),
    },

    // DeCLUTR (ACL 2021), figure 2: its anchors, positives and strategies, in static encoders, of which
    // all can be run with several seeds; the temperatures are the paper's and the recipe's, the learning
    // rates the recipe's and half of it. `compare` has a factor and two of its values, which are
    // compared over all pairs of rows that are alike in all others.
    figure2: {
      title: "DeCLUTR's figure 2: anchors, positives and their strategy",
      tasks: similarity,
      compare: [
        ["anchors", 2, 1],
        ["positives", 2, 1],
        ["positives", 4, 1],
        ["strategy", "all", "adjacent"],
        ["strategy", "all", "subsuming"],
        ["temperature", "2e-1", "5e-2"],
        ["temperature", "5e-2", "1e-2"],
        ["temperature", "1e-2", "5e-3"],
        ["learning rate", "1e-2", "5e-3"],
      ],
      local run(anchors, positives, strategy, temperature, rate) = {
        factors: {
          anchors: anchors,
          positives: positives,
          strategy: strategy,
          temperature: temperature,
          "learning rate": rate,
        },
      } + changed(
        "A = %d, P = %d, %s, temperature %s, learning rate %s"
        % [anchors, positives, strategy, temperature, rate],
        {
          num_anchors: anchors,
          num_positives: positives,
          temperature: std.parseJson(temperature),
        }
        // Section 5.2: runs with one anchor get twice the documents a step and twice the epochs, so
        // that they see as many spans, in as many steps.
        + (if anchors == 1 then { batch_size: 64, num_epochs: 20 } else {})
        + (if rate == "1e-2" then {} else { learning_rate: std.parseJson(rate) })
        + (if strategy == "all" then {} else { "dataset_reader.sampling_strategy": strategy })
      ),
      local rows(positives, strategies) = [
        run(anchors, number, strategy, temperature, rate)
        for strategy in strategies
        for number in positives
        for anchors in [1, 2]
        for temperature in ["5e-3", "1e-2", "5e-2", "2e-1"]
        for rate in ["5e-3", "1e-2"]
      ],
      blocks: trained_on(
        ["openstax_sections"],
        "PPMI",
        rows([1, 2, 4], ["all"]) + rows([2], ["adjacent", "subsuming"])
      ),
    },

    // DeCLUTR (ACL 2021), figure 3 and section 5.3: objective and data; capacity with static encoders,
    // of which no larger one must be pre-trained. Probing is the paper's argument for MLM.
    figure3: {
      title: "DeCLUTR's figure 3: masked language modelling, documents, capacity",
      tasks: everything + probing,
      local of(documents) = { "data_loader.subset": { size: documents } },
      blocks: trained_on(["openstax_sections"], again, [
        declutr("contrastive and MLM"),
        declutr("contrastive", recipe="contrastive_only"),
        mlm(),
      ] + [
        declutr("contrastive and MLM, %d documents" % documents, of(documents))
        for documents in [200, 660]
      ]) + [
        {
          corpora: ["openstax_sections"],
          starts: ["PPMI, 64 dimensions", "PPMI", "PPMI, 512 dimensions"],
          rows: [alone],
          seeds: of_start,
        },
        {
          corpora: ["openstax_sections"],
          starts: ["PPMI, 64 dimensions", "PPMI", "PPMI, 512 dimensions"],
          rows: [changed("static_declutr", {})] + [
            changed("static_declutr, %d documents" % documents, of(documents))
            for documents in [200, 660]
          ],
          seeds: [1, 2, 3],
        },
      ],
    },

    // DeCLUTR v1 (arXiv, June 2020), figure S1.
    figureS1: {
      title: "DeCLUTR v1's figure S1: projection and memory bank",
      tasks: everything,
      blocks: trained_on(["openstax_sections"], again, [
        declutr("DeCLUTR"),
        declutr("projection", recipe="declutr_projection"),
        declutr("memory bank", { embedding_size: pretrained.hidden_size }, "declutr_memory_bank"),
      ]),
    },

    // SCD (2022), table 3: its two terms alone and together; its figure of alignment and uniformity.
    scd: {
      title: "SCD's ablation",
      tasks: everything + ["geometry"],
      blocks: trained_on(["openstax_sections"], transformer, [
        scd("self-contrast", "scd_self_contrast"),
        scd("decorrelation", "scd_decorrelation"),
        scd("SCD", "scd"),
        simcse,
      ]),
    },

    adaptation_search: {
      title: "Settings of the adaptation, one at a time",
      tasks: similarity,
      local changed(change, changes) =
        declutr("DeCLUTR without MLM, " + change, gentle + changes, "contrastive_only"),
      blocks: trained_on(["acl_papers"], "MiniLM", [
        changed("learning rate 1e-5", { learning_rate: 1e-5 }),
        changed("temperature 0.2", { temperature: 0.2 }),
        changed("one anchor of 64 documents", { num_anchors: 1, batch_size: 64 }),
        changed("adjacent positives", { "dataset_reader.sampling_strategy": "adjacent" }),
        changed("spans of 32 to 126", spans(32, 126)),
        adapted("SimCSE, learning rate 1e-5", "simcse", { learning_rate: 1e-5 }),
        adapted("SimCSE, three times the steps", "simcse", { "data_loader.subset": { size: 64 * 240 } }),
      ], seeds=[11]),
    },

    adaptation: {
      title: "Adapting a public sentence encoder to a domain",
      tasks: similarity,
      blocks: [{
        corpora: ["acl_papers"],
        starts: ["MiniLM, first token"],
        rows: [alone],
        seeds: of_start,
      }] + trained_on(["acl_papers"], "MiniLM", [
        declutr("DeCLUTR without MLM", gentle, "contrastive_only"),
        declutr("DeCLUTR without MLM, adjacent positives, lr 1e-5", gentle {
          "dataset_reader.sampling_strategy": "adjacent",
          learning_rate: 1e-5,
        }, "contrastive_only"),
        declutr("DeCLUTR", gentle),
        mlm(gentle),
        adapted("SimCSE", "simcse"),
        adapted("TSDAE", "tsdae", { max_length: 64 }),
      ]),
    },
  },
}
