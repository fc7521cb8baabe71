"""What extraction costs beside the model: on the host, between it and the device, for grammars."""
