"""Rivals as engines of a comparison; one family per file."""

from benchmarks.rivals.continuous import Continuous
from benchmarks.rivals.draft import Draft
from benchmarks.rivals.generate import BatchPrompting, GenerateFlash, Lookup
from benchmarks.rivals.llama_cpp import LlamaCpp
from benchmarks.rivals.outlines import Outlines
from benchmarks.rivals.per_attribute import PerAttribute, PerAttributeCached
from schemax.evaluation.benchmark.compare import Rivals
from schemax.evaluation.benchmark.generate import Generate

ALL: Rivals = (
    *(Generate, GenerateFlash, BatchPrompting, Lookup, Draft),
    *(PerAttribute, PerAttributeCached, Continuous, LlamaCpp, Outlines),
)
