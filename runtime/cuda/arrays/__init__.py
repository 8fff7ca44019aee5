"""Arrays on a device: DeviceArray, DLPack, foreign arrays."""
