"""Fast passes of a transformer: without padding, and with the quickest kernels of a processor.

Nothing in this package imports AllenNLP.
"""
