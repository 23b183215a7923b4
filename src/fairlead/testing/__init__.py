"""The testing kit: fakes, builders and conformance suites. Shipped, imported by tests only."""
