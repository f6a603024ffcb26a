"""`python -m tests.pretend_gpu`: see `rehearsal.py`."""

import os
import warnings

from .build import load_hooks

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    load_hooks()
    from .rehearsal import main  # which imports torch

    main()
