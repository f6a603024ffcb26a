"""AllenNLP's own tests, and those of allennlp-models, under our bridge, beside a stand-in hub.

    python -m tests.allennlp_suites ALLENNLP MODELS

takes clones of the two repositories, runs the tests of copies of them room by room, and compares
every failure with `expected.toml`, which has its cause. `make test-allennlp` does so on both
generations of transformers.
"""
