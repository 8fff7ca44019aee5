"""Matrix products on the CPU: shape classes, blocking, packing, microkernels, epilogues."""
