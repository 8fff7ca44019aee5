"""Stages schedule and emit for the CPU; ``schedule`` lists the loop transformations in order."""
