"""DeviceArray, DLPack."""
