"""What is minimised, and who minimises it: losses, trainers of cells, judges and brokers."""
