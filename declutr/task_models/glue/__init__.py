"""Labelled texts for any AllenNLP model, from GLUE, from SentEval and from users' own files.

The reader is registered as the DatasetReader "glue". The module `layouts` describes the columns of
each task.
"""

from declutr.task_models.glue.reader import GlueReader

__all__ = ["GlueReader"]
