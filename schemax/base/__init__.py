"""What every room uses: messages, progress, the machine's resources, calibrations, the Hub."""
