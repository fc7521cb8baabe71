"""Diagnosis: the doctor, which tests whether and how schemax runs on a model; traces of passes."""

from schemax.evaluation.diagnosis.examination import Agreement, Check, Diagnosis, doctor

__all__ = ["Agreement", "Check", "Diagnosis", "doctor"]
