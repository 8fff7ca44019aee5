"""The version of this package, and where its project is."""

__version__ = "0.2.0"
ADDRESS = ""
"""The project's address on the web, such as that of its repository, from which setup.py builds the links of the package page.
Empty until the project's owner sets it."""
CONTACT = ""
"""The mail address of the package page; empty until the project's owner sets it."""
