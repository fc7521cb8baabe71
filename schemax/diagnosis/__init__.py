"""Whether and how schemax runs on a given model, with proof."""

from schemax.diagnosis.examination import doctor
from schemax.diagnosis.report import Agreement, Check, Diagnosis

__all__ = ["Agreement", "Check", "Diagnosis", "doctor"]
