"""Captures: names, guards, proxies."""
