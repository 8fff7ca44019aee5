"""The tests, in folders that mirror the sources, their helpers in ``support``, tables of cases and expected texts in ``golden``."""
