"""Task models and readers that RECLAIM is tried on."""
