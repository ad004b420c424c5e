"""What crosses a process or machine border: trainer messages, the manifest, the folder layout.

Standard library only, Python 3.10 on: this package is imported inside the trainer's process.
"""
