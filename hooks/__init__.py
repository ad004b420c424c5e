"""What runs inside the trainer's process. Standard library only at import; Python 3.10 on."""

if __name__ != "outlast.hooks":
    raise ImportError("import outlast.hooks, not hooks")
