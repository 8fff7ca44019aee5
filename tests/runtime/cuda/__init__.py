"""Tests of programs, arrays and libraries on a CUDA device."""
