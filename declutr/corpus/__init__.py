"""Files of any format as rows, sentences, and token ids on disk: no AllenNLP."""
