"""One outside thing each: they fetch and store and decide nothing."""
