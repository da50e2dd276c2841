"""What a step does: one verb a module, each a plain async function."""
