"""Diagnosis: the doctor, which tests whether and how schemax runs on a model; traces of passes."""

from schemax.evaluation.diagnosis.diagnosis import Agreement, Check, Diagnosis
from schemax.evaluation.diagnosis.examination import doctor

__all__ = ["Agreement", "Check", "Diagnosis", "doctor"]
