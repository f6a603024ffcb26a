"""Labelled texts for any AllenNLP model: GLUE's tasks, some of SentEval's, and files of one's own.

Registered as the DatasetReader "glue". `layouts` says where the columns of each task are.
"""

from declutr.task_models.glue.reader import GlueReader

__all__ = ["GlueReader"]
