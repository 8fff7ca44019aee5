"""Run compiled programs: machine code from text, devices, programs, memory, the kernel cache."""
