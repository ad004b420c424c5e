"""Where notices and hints come from: one module a provider, one small interface (see base)."""

if __name__ != "outlast.providers":
    raise ImportError("import outlast.providers, not providers")
