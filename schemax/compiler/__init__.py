"""Compiles schema x format x tokenizer into a `CompiledSchema`. Never imports torch."""

from schemax.compiler.compile import compile_schema
from schemax.compiler.compiled_schema import CompiledSchema
from schemax.compiler.tokenizer import TextCodec, as_codec, load_codec

__all__ = ["CompiledSchema", "TextCodec", "as_codec", "compile_schema", "load_codec"]
