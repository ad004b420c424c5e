"""Stand-ins for the providers' endpoints, and drills: everything real except the provider's word."""

if __name__ != "outlast.simulations":
    raise ImportError("import outlast.simulations, not simulations")
