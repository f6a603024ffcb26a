"""Which tokens of a document are drawn or masked: numpy and torch only."""
