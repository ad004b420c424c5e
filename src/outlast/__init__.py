"""Training that outlasts the spot instance it runs on."""

__version__ = "0.1.0"
