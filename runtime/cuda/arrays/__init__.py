"""Arrays on a device: DeviceArray, DLPack, arrays of other libraries."""
