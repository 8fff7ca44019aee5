"""Tests: folders as those of the sources, helpers in ``support``, tables of cases in ``tables``, expected texts in ``golden``."""
