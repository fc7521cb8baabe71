"""What the host does beside the model: its CPU time, and what passes between it and the device."""
