"""Models of transformers as decoders: how they are loaded, examined, called and bounded."""
