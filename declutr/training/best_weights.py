"""The choice of the best weights of a run by a score."""

import logging
import math
import os
from typing import Any, Optional

from allennlp.training import GradientDescentTrainer

from declutr.archives import BEST_WEIGHTS
from declutr.system.distributed import of_all_processes
from declutr.training.checkpointer import save_whole

logger = logging.getLogger(__name__)


class BestWeights:
    """The weights with the best value of a score so far: `best.th`, which goes into the archive.

    # Parameters

    select_by : the score whose highest value is the best, or, with a `-` in front, the lowest;
        `None` chooses no weights.
    folder : of the run.
    """

    def __init__(self, select_by: Optional[str], folder: Optional[str]) -> None:
        self._lowest = (select_by or "").startswith("-")
        self.score = select_by.removeprefix("-").removeprefix("+") if select_by else None
        """Its name."""
        self.file = os.path.join(folder or "", BEST_WEIGHTS)
        self.found: Optional[dict[str, Any]] = None
        """The value of the best weights, their step and epoch, and all scores of them."""

    def is_lost(self) -> bool:
        """Forget the best weights if, after the run was resumed, they are not there any more."""
        # Each node of a run may have a folder of its own.
        if self.found is None or all(of_all_processes(os.path.exists(self.file))):
            return False
        logger.warning(
            "There is no %s any more. The choice begins anew, with the weights of the checkpoint.",
            self.file,
        )
        self.found = None
        return True

    def select(
        self,
        trainer: GradientDescentTrainer,
        scores: dict[str, float],
        step: int,
        epoch: int,
        is_primary: bool,
    ) -> bool:
        """Keep these weights if they are the best so far. All processes take part."""
        if self.score is None:
            return False
        value = scores.get(self.score, math.nan)
        if not math.isfinite(value):
            logger.warning("%s is %s: these weights cannot be chosen.", self.score, value)
            return False
        if self.found is not None:
            before = self.found["value"]
            if value >= before if self._lowest else value <= before:
                return False
        state = (trainer._ddp_wrapped_model or trainer.model).state_dict()
        if is_primary:
            save_whole(state, self.file)
        trainer._best_model_filename = self.file
        self.found = {"value": value, "step": step, "epoch": epoch, "scores": scores}
        return True
