"""Work pools, one module a kind: local cards, and far services that speak OpenAI."""
