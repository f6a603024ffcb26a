"""DatasetReaders, fields, batches and the DataLoader."""
