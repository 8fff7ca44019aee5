"""Modes that check each call: ``check=True``, ``debug=True`` and ``verify=n``."""
