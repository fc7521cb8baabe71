"""A loaded model meets documents: `Extractor`, its pipeline, its prompts, and `AttrSchema`."""
