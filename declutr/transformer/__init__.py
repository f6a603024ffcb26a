"""One pass of a transformer without padding, by the quickest kernels of a processor: no
AllenNLP."""
