"""The `coderai` command, one module a sub-command."""
