"""Diagnosis: the doctor, which tests whether and how schemax runs on a model; traces of passes."""

from schemax.evaluation.diagnosis.examination import doctor
from schemax.evaluation.diagnosis.report import Agreement, Check, Diagnosis

__all__ = ["Agreement", "Check", "Diagnosis", "doctor"]
