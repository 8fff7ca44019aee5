"""Modes that check a call: check=True, debug=True, verify=n."""
