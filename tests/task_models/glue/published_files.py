"""Tiny files in the layouts that GLUE and SentEval publish; the rows are made up."""

HEADERS = {
    "sst-2": "sentence label",
    "mrpc": "Quality,#1 ID,#2 ID,#1 String,#2 String",
    "qqp": "id qid1 qid2 question1 question2 is_duplicate",
    "sts-b": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "mnli": "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
    "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label",
    "mnli dev": "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
    "sentence1_parse sentence2_parse sentence1 sentence2 label1 label2 label3 label4 label5 "
    "gold_label",
    "qnli": "index question sentence label",
    "rte": "index sentence1 sentence2 label",
    "wnli": "index sentence1 sentence2 label",
    "sick-e": "pair_ID sentence_A sentence_B relatedness_score entailment_judgment",
    "cola test": "index sentence",
    "sst-2 test": "index sentence",
    "mrpc test": "index,#1 ID,#2 ID,#1 String,#2 String",
    "qqp test": "id question1 question2",
    "sts-b test": "index genre filename year old_index source1 source2 sentence1 sentence2",
    "mnli test": "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
    "sentence1_parse sentence2_parse sentence1 sentence2",
    "qnli test": "index question sentence",
    "rte test": "index sentence1 sentence2",
    "wnli test": "index sentence1 sentence2",
}
HEADERS["sick-r"] = HEADERS["sick-e"]

# Two rows of each task, with the texts and the label as published.
SINGLE = [('He said "ka lo', "0"), ("mi tu's re", "1")]
PAIRS = [(('ka "lo', "mi tu"), "0"), (("re sa", "no"), "1")]
NLI = [(('ka "lo', "mi tu"), "neutral"), (("re sa", "no"), "contradiction")]
TWO_WAY = [(('ka "lo', "mi tu"), "not_entailment"), (("re sa", "no"), "entailment")]
SCORED = [(('ka "lo', "mi tu"), "3.800"), (("re sa", "no"), "5.000")]
ROWS = {
    "cola": [((text,), label) for text, label in SINGLE],
    "sst-2": [((text,), label) for text, label in SINGLE],
    "mrpc": PAIRS,
    "qqp": PAIRS,
    "sts-b": SCORED,
    "mnli": NLI,
    "mnli dev": NLI,
    "qnli": TWO_WAY,
    "rte": TWO_WAY,
    "wnli": PAIRS,
    "sick-e": [(texts, label.upper()) for texts, label in NLI],
    "sick-r": SCORED,
}

_FIRST_TEXTS = ("#1 String", "question1", "question", "sentence1", "sentence_A", "sentence")
_LABELS = {
    "sick-e": "entailment_judgment",
    "sick-r": "relatedness_score",
    "mrpc": "Quality",
    "qqp": "is_duplicate",
    "sts-b": "score",
    "mnli": "gold_label",
}


def published(kind: str) -> str:
    """Return the content of a file of a task, named "task", "task dev" or "task test"."""
    task, _, part = kind.partition(" ")
    if kind == "cola":
        lines = [f"gj04\t{label}\t*\t{texts[0]}" for texts, label in ROWS[task]]
        return "\n".join(lines) + "\n"
    header = HEADERS[kind]
    names = header.split("," if "," in header else " ")
    first = names.index(next(name for name in _FIRST_TEXTS if name in names))
    lines = ["\t".join(names)]
    for number, (texts, label) in enumerate(ROWS[task]):
        fields = [f"x{number}"] * len(names)
        fields[first : first + len(texts)] = texts
        if part != "test":
            fields[names.index(_LABELS.get(task, "label"))] = label
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"
