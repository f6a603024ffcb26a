"""Task models and dataset readers with which RECLAIM is evaluated."""
