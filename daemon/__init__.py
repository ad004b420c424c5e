"""The daemon: interruption state, commit, shipping, takeover, history and the command line."""

if __name__ != "outlast.daemon":
    raise ImportError("import outlast.daemon, not daemon")
