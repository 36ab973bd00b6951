"""What measures: benchmarks, load scenarios, the simulator around the real pool. Meets the gateway over HTTP."""
