"""The scheduler, the passes it composes, and the streams of calls that share them."""
