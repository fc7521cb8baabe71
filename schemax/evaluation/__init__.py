"""The quality of extractions: scores, confidences, judges."""
