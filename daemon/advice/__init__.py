"""Where and when to run, at which interval, for what cost: pure functions of rates, prices and a request."""
