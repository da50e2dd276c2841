"""Where steps run: pools, engines, the router and its ledger. Knows machines, not requests."""
