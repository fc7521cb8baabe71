"""What every room uses: messages, progress, resources, calibrations, the process."""
