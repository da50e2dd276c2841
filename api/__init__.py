"""The HTTP edge and the command line. Knows OpenAI's shapes; decides nothing."""
